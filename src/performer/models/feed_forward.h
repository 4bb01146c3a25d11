#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>

#include "performer/models/linear.h"
#include "performer/models/model_config.h"

namespace performer::models {

/// output(f(input(x))), f = relu or gelu; swiglu: output(silu(a) b), [a b] = input(x).
class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x);  // [B, L, E] -> [B, L, E]

 private:
  enum class Activation : std::uint8_t { kRelu, kGelu, kSwiglu };
  Activation activation_;
  Linear input_{nullptr}, output_{nullptr};
};
TORCH_MODULE(FeedForward);

}  // namespace performer::models
