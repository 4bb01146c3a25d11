#include "performer/run/tensor_file.h"

#include <ATen/core/grad_mode.h>
#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::run {
namespace {

using safetensors::Dtype;

constexpr std::array<std::pair<Dtype, at::ScalarType>, 13> kTypes{{
    {Dtype::kF64, at::kDouble},
    {Dtype::kF32, at::kFloat},
    {Dtype::kF16, at::kHalf},
    {Dtype::kBF16, at::kBFloat16},
    {Dtype::kI64, at::kLong},
    {Dtype::kI32, at::kInt},
    {Dtype::kI16, at::kShort},
    {Dtype::kI8, at::kChar},
    {Dtype::kU64, at::kUInt64},
    {Dtype::kU32, at::kUInt32},
    {Dtype::kU16, at::kUInt16},
    {Dtype::kU8, at::kByte},
    {Dtype::kBool, at::kBool},
}};

Dtype dtype_of(const std::string& name, at::ScalarType type) {
  const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const auto& pair) { return pair.second == type; });
  TORCH_CHECK(row != kTypes.end(), "safetensors: tensor ", name, " has type ", type,
              ", which the format cannot hold");
  return row->first;
}

const auto* row_of(Dtype dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(),
                      [&](const auto& pair) { return pair.first == dtype; });
}

at::ScalarType scalar_type(Dtype dtype) { return row_of(dtype)->second; }

// The format has types that nothing here reads.
void check_types(const safetensors::Reader& reader, const std::filesystem::path& path) {
  for (const auto& entry : reader.tensors()) {
    if (row_of(entry.dtype) == kTypes.end()) {
      fail(ExitCode::kBadInput, "{}: tensor {} is {}, which no checkpoint has", path.string(),
           shown(entry.name), name_of(entry.dtype));
    }
  }
}

at::Tensor copy_of(const safetensors::Reader& reader, const safetensors::TensorEntry& entry) {
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(scalar_type(entry.dtype)));
  reader.read(entry, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  return tensor;
}

// Collects what differs, and shows the first few.
class Differences {
 public:
  void add(std::string text) {
    if (++count_ <= kShown) {
      text_ += (text_.empty() ? "" : "; ") + std::move(text);
    }
  }
  void check(const std::filesystem::path& path) const {
    if (count_ > 0) {
      fail(ExitCode::kBadInput, "{}: checkpoint of another model: {}{}", path.string(), text_,
           count_ > kShown ? fmt::format("; and {} more", count_ - kShown) : "");
    }
  }

 private:
  static constexpr int kShown = 3;
  int count_ = 0;
  std::string text_;
};

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

void compare(const safetensors::TensorEntry& entry, const at::Tensor& target, DtypeRule rule,
             Differences& differences) {
  if (target.sizes() != at::IntArrayRef(entry.shape)) {
    differences.add(fmt::format("{} is {} in the file, {} in the model", shown(entry.name),
                                shape_text(entry.shape), shape_text(target.sizes())));
  } else if (rule == DtypeRule::kExact && target.scalar_type() != scalar_type(entry.dtype)) {
    differences.add(fmt::format("{} is {} in the file, {} in the model", shown(entry.name),
                                c10::toString(scalar_type(entry.dtype)),
                                c10::toString(target.scalar_type())));
  }
}

}  // namespace

void write_tensors(FileWriter& out, const NamedTensors& tensors,
                   const safetensors::Metadata& metadata) {
  std::vector<safetensors::TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, dtype_of(name, tensor.scalar_type()), tensor.sizes().vec()});
  }
  at::Tensor host;  // keeps the bytes of the tensor being written
  safetensors::write(out, specs, metadata, [&](std::size_t i) {
    host = tensors[i].second.detach().to(at::kCPU).contiguous();
    return std::span(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes());
  });
}

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const safetensors::Metadata& metadata) {
  AtomicFile file(path);
  write_tensors(file.writer(), tensors, metadata);
  file.commit();
}

void visit_tensors(const std::filesystem::path& path,
                   const std::function<void(const std::string& name, const at::Tensor&)>& take) {
  const safetensors::Reader reader(path);
  check_types(reader, path);
  for (const auto& entry : reader.tensors()) take(entry.name, copy_of(reader, entry));
}

NamedTensors load_tensors(const std::filesystem::path& path) {
  NamedTensors tensors;
  visit_tensors(path, [&](const std::string& name, const at::Tensor& tensor) {
    tensors.emplace_back(name, tensor);
  });
  return tensors;
}

void load_into(const std::filesystem::path& path, const NamedTensors& targets, DtypeRule rule) {
  const safetensors::Reader reader(path);
  check_types(reader, path);
  std::unordered_map<std::string_view, const safetensors::TensorEntry*> entries;
  for (const auto& entry : reader.tensors()) {
    entries.emplace(entry.name, &entry);
  }
  Differences differences;
  std::vector<std::pair<const safetensors::TensorEntry*, at::Tensor>> plan;
  plan.reserve(targets.size());
  for (const auto& [name, target] : targets) {
    const auto found = entries.find(name);
    if (found == entries.end()) {
      differences.add(fmt::format("{} is not in the file", shown(name)));
      continue;
    }
    compare(*found->second, target, rule, differences);
    plan.emplace_back(found->second, target);
    entries.erase(found);
  }
  for (const auto& entry : reader.tensors()) {
    if (entries.contains(entry.name)) {
      differences.add(fmt::format("{} is only in the file", shown(entry.name)));
    }
  }
  differences.check(path);
  const at::NoGradGuard no_grad;
  for (auto& [entry, target] : plan) {
    target.copy_(copy_of(reader, *entry));
  }
}

}  // namespace performer::run
