#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "performer/run/tensor_file.h"

/// Weights that left the finite numbers are no model: they are neither saved nor loaded.
namespace performer::run {

/// Names the first tensor that holds NaN or infinity, and how many; nothing where none does.
std::optional<std::string> find_not_finite(const NamedTensors& tensors);

/// kCorrupt, naming file and tensor, where a tensor of the file holds NaN or infinity.
void check_finite(const std::filesystem::path& path);

}  // namespace performer::run
