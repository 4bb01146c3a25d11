#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "performer/models/activation.h"
#include "performer/models/linear.h"
#include "performer/models/model_config.h"

namespace performer::models {

/// output(f(input(x))), f the config's activation; swiglu halves what input gives.
class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x);  // [B, L, E] -> [B, L, E]

 private:
  Activation activation_;
  Linear input_{nullptr}, output_{nullptr};
};
TORCH_MODULE(FeedForward);

}  // namespace performer::models
