#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace performer::models {

using at::Tensor;

/// y = x weightᵀ + bias.  x: [..., in], rows may be strided;  returns [..., out], contiguous.
/// One GEMM with the bias in it. Parameters are made empty; see initialize.h.
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(std::int64_t in, std::int64_t out, bool bias = true);
  Tensor forward(const Tensor& x) const;

  Tensor weight;  // [out, in]
  Tensor bias;    // [out]; undefined: none
};
TORCH_MODULE(Linear);

}  // namespace performer::models
