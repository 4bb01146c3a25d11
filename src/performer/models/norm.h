#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>

namespace performer::models {

using at::Tensor;

/// LayerNorm ("layer": weight and bias) or RMSNorm ("rms": weight) over the last dimension.
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(const std::string& kind, std::int64_t dim);
  Tensor forward(const Tensor& x) const;  // [..., E] -> [..., E]

 private:
  Tensor weight_, bias_;  // [E]; bias undefined for RMSNorm
};
TORCH_MODULE(Norm);

}  // namespace performer::models
