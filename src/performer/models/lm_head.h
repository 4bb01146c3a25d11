#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "performer/models/activation.h"
#include "performer/models/linear.h"
#include "performer/models/model_config.h"
#include "performer/models/norm.h"

namespace performer::models {

/// What masked language models have before their output layer: norm(f(dense(x))), f the config's
/// activation. Parameters dense.*, norm.*.
class LmTransformImpl : public torch::nn::Module {
 public:
  explicit LmTransformImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x) const;  // [..., E] -> [..., E]

 private:
  Activation activation_;
  Linear dense_{nullptr};
  Norm norm_{nullptr};
};
TORCH_MODULE(LmTransform);

/// From hidden states to logits: the transform where there is one, then a linear layer, which is the
/// embedding for tied models. Parameters, where the config has them: transform.*, weight, bias.
class LmHeadImpl : public torch::nn::Module {
 public:
  explicit LmHeadImpl(const ModelConfig& config);
  /// x: [..., E];  embedding: [V, E];  returns [..., V].
  Tensor forward(const Tensor& x, const Tensor& embedding) const;

 private:
  LmTransform transform_{nullptr};
  Tensor weight_;  // [V, E]; undefined: the embedding
  Tensor bias_;    // [V]; undefined: none
};
TORCH_MODULE(LmHead);

}  // namespace performer::models
