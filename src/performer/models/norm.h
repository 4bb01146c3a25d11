#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "performer/models/model_config.h"

namespace performer::models {

using at::Tensor;

/// LayerNorm ("layer": weight and bias) or RMSNorm ("rms": weight) over the last dimension.
class NormImpl : public torch::nn::Module {
 public:
  explicit NormImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x) const;  // [..., E] -> [..., E]

 private:
  double eps_;
  Tensor weight_, bias_;  // [E]; bias undefined for RMSNorm
};
TORCH_MODULE(Norm);

}  // namespace performer::models
