#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "performer/core/file.h"
#include "performer/core/safetensors.h"

/// Tensors in safetensors files.
namespace performer::run {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes detached copies of `tensors` of any layout, on any device: one at a time on the host.
void write_tensors(FileWriter& out, const NamedTensors& tensors,
                   const safetensors::Metadata& metadata = {});

/// The same as a file of its own, which appears whole or not at all.
void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const safetensors::Metadata& metadata = {});

/// Calls `take` with every tensor on the CPU, one at a time in the order of the file. kCorrupt when
/// the bytes are damaged.
void visit_tensors(const std::filesystem::path& path,
                   const std::function<void(const std::string& name, const at::Tensor&)>& take);

/// All tensors on the CPU, in the order of the file. kCorrupt when the bytes are damaged.
NamedTensors load_tensors(const std::filesystem::path& path);

enum class DtypeRule : std::uint8_t { kExact, kConvert };

/// Overwrites `targets` in place (on their devices, no gradient) with the tensors of those names.
/// kBadInput, with nothing overwritten, unless file and targets have the same names, shapes and,
/// for kExact, types.
void load_into(const std::filesystem::path& path, const NamedTensors& targets,
               DtypeRule rule = DtypeRule::kExact);

}  // namespace performer::run
