#include "performer/models/feed_forward.h"

namespace performer::models {

FeedForwardImpl::FeedForwardImpl(const ModelConfig& config)
    : activation_(parse_activation(config.activation)) {
  const std::int64_t width = (activation_ == Activation::kSwiglu ? 2 : 1) * config.ff_dim;
  input_ = register_module("input", Linear(config.dim, width, config.ff_bias));
  output_ = register_module("output", Linear(config.ff_dim, config.dim, config.ff_bias));
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  return output_->forward(activate(input_->forward(x), activation_));
}

}  // namespace performer::models
