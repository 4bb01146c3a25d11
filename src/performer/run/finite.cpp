#include "performer/run/finite.h"

#include <ATen/Functions.h>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::run {
namespace {

std::optional<std::string> describe(const std::string& name, const at::Tensor& tensor) {
  const auto bad = at::isfinite(tensor).logical_not().sum().item<std::int64_t>();
  if (bad == 0) return std::nullopt;
  return fmt::format("tensor {} is not finite in {} of its {} values", shown(name), bad,
                     tensor.numel());
}

}  // namespace

std::optional<std::string> find_not_finite(const NamedTensors& tensors) {
  if (tensors.empty()) return std::nullopt;
  std::vector<at::Tensor> verdicts;  // one wait for the device, not one a tensor
  verdicts.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) verdicts.push_back(at::isfinite(tensor).all());
  if (at::stack(verdicts).all().item<bool>()) return std::nullopt;
  for (const auto& [name, tensor] : tensors) {
    if (auto text = describe(name, tensor)) return text;
  }
  return std::nullopt;
}

void check_finite(const std::filesystem::path& path) {
  visit_tensors(path, [&](const std::string& name, const at::Tensor& tensor) {
    if (const auto text = describe(name, tensor)) {
      fail(ExitCode::kCorrupt,
           "{}: {}: training had diverged when it was saved; take an older checkpoint",
           path.string(), *text);
    }
  });
}

}  // namespace performer::run
