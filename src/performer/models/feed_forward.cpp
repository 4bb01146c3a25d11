#include "performer/models/feed_forward.h"

#include <ATen/ATen.h>

namespace performer::models {

FeedForwardImpl::FeedForwardImpl(const ModelConfig& config)
    : activation_(config.activation == "relu"   ? Activation::kRelu
                  : config.activation == "gelu" ? Activation::kGelu
                                                : Activation::kSwiglu) {
  const std::int64_t width = (activation_ == Activation::kSwiglu ? 2 : 1) * config.ff_dim;
  input_ = register_module("input", Linear(config.dim, width));
  output_ = register_module("output", Linear(config.ff_dim, config.dim));
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  const Tensor h = input_->forward(x);
  switch (activation_) {
    case Activation::kRelu:
      return output_->forward(at::relu(h));
    case Activation::kGelu:
      return output_->forward(at::gelu(h));
    case Activation::kSwiglu:
      break;
  }
  const auto halves = h.chunk(2, -1);
  return output_->forward(at::silu(halves[0]) * halves[1]);
}

}  // namespace performer::models
