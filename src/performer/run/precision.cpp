#include "performer/run/precision.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "performer/core/error.h"

namespace performer::run {
namespace {

std::vector<Tensor> tensors_of(const NamedTensors& named) {
  std::vector<Tensor> tensors(named.size());
  std::transform(named.begin(), named.end(), tensors.begin(),
                 [](const auto& item) { return item.second; });
  return tensors;
}

}  // namespace

at::ScalarType parse_precision(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  fail(ExitCode::kUsage, "--precision: must be one of fp32, bf16, fp16, got {}", name);
}

Weights::Weights(models::Transformer model, at::ScalarType precision) : precision_(precision) {
  for (const auto& item : model->named_parameters()) {
    auto parameter = item.value();
    auto master = parameter.detach();
    if (!shared()) {
      master = master.clone();
      parameter.set_data(master.to(precision));
    }
    masters_.emplace_back(item.key(), master);
    parameters_.push_back(parameter);
    gradients_.push_back(at::zeros_like(master));
    if (shared()) parameter.mutable_grad() = gradients_.back();
  }
}

void Weights::collect_gradients() {
  if (shared()) return;  // autograd adds into gradients_ itself
  std::vector<Tensor> sums, parts;
  sums.reserve(parameters_.size());
  parts.reserve(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& gradient = parameters_[i].mutable_grad();
    if (!gradient.defined()) continue;
    sums.push_back(gradients_[i]);
    parts.push_back(gradient);
    gradient = Tensor();
  }
  if (!sums.empty()) at::_foreach_add_(sums, parts);
}

void Weights::zero_gradients() { at::_foreach_zero_(gradients_); }

void Weights::publish() {
  if (shared()) return;
  at::NoGradGuard no_grad;
  at::_foreach_copy_(parameters_, tensors_of(masters_));
}

}  // namespace performer::run
