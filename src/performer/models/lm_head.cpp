#include "performer/models/lm_head.h"

#include <ATen/ATen.h>

namespace performer::models {

LmTransformImpl::LmTransformImpl(const ModelConfig& config)
    : activation_(parse_activation(config.activation)) {
  dense_ = register_module("dense", Linear(config.dim, config.dim));
  norm_ = register_module("norm", Norm(config));
}

Tensor LmTransformImpl::forward(const Tensor& x) const {
  return norm_->forward(activate(dense_->forward(x), activation_));
}

LmHeadImpl::LmHeadImpl(const ModelConfig& config) {
  if (config.head_transform) transform_ = register_module("transform", LmTransform(config));
  if (!config.tied) {
    weight_ = register_parameter("weight", at::zeros({config.vocabulary, config.dim}));
  }
  if (config.logits_bias) bias_ = register_parameter("bias", at::zeros({config.vocabulary}));
}

Tensor LmHeadImpl::forward(const Tensor& x, const Tensor& embedding) const {
  const Tensor in = transform_.is_empty() ? x : transform_->forward(x);
  return at::linear(in, weight_.defined() ? weight_ : embedding, bias_);
}

}  // namespace performer::models
