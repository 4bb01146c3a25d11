#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "performer/models/attention_core.h"
#include "performer/models/model_config.h"
#include "performer/ops/favor/attention.h"

namespace performer::models {

/// Features that are numbers of the model, where random ones are functions of a seed. With
/// x = sqrt(scale) q and y = sqrt(scale) k, for each head,
///   log phi_r(y) = key_weight_r . y + key_bias_r - |key_form y|^2 / 2
///   log phi_r(x) = query_weight_r . x + query_bias_r  [- |query_form x|^2 / 2 + query_offset],
/// where the bracket is there with a near field alone: elsewhere it cancels. They begin as the
/// random features of the config, drawn: weights W, biases 0, forms the identity.
///
/// Buffers, float32 whatever the parameters become, so that training leaves them as they are:
/// query_weight [H, M, D], query_bias [H, M], key_weight [Hkv, M, D], key_bias [Hkv, M], key_form
/// [Hkv, D, D]; with a near field query_form [H, D, D], query_offset [H].
class FittedFeaturesImpl : public torch::nn::Module {
 public:
  FittedFeaturesImpl(const ModelConfig& config, std::int64_t layer);

  /// What favor_attention takes for q and k beside W = query_weight.
  void add_to(FavorOptions& options, const Heads& heads) const;

  /// log phi(x) of q [B, H, L, D] and log phi(y) of k [B, Hkv, L, D], without 1/sqrt(m), [.., M].
  Tensor log_queries(const Tensor& q) const;
  Tensor log_keys(const Tensor& k) const;

  double scale() const { return scale_; }

  Tensor query_weight, query_bias, key_weight, key_bias, key_form;
  Tensor query_form, query_offset;  // undefined without a near field

 private:
  double scale_;
};
TORCH_MODULE(FittedFeatures);

}  // namespace performer::models
