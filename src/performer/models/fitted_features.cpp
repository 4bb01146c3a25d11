#include "performer/models/fitted_features.h"

#include <ATen/ATen.h>

#include <cmath>

#include "performer/models/random_projection.h"

namespace performer::models {
namespace {

// -|F x|^2 / 2 of x = sqrt(scale) t: [B, H, L].
Tensor quadratic(const Tensor& t, const Tensor& form, double scale) {
  const Tensor moved = at::matmul(t.to(form.scalar_type()), form.transpose(-2, -1));
  return moved.square().sum(-1) * (-0.5 * scale);
}

// W x + b: [B, H, L, M].
Tensor linear(const Tensor& t, const Tensor& weight, const Tensor& bias, double scale) {
  const Tensor x = t.to(weight.scalar_type()) * std::sqrt(scale);
  return at::matmul(x, weight.transpose(-2, -1)) + bias.unsqueeze(-2);
}

}  // namespace

FittedFeaturesImpl::FittedFeaturesImpl(const ModelConfig& config, std::int64_t layer)
    : scale_(config.attention.scale > 0 ? config.attention.scale
                                        : 1 / std::sqrt(static_cast<double>(config.head_dim()))) {
  const auto heads = config.heads, key_heads = config.key_heads(), d = config.head_dim();
  const auto m = config.attention.features;
  AttentionConfig random = config.attention;
  random.projection = "orthogonal";
  const Tensor W = draw_for(random, {key_heads, d, layer}, 0);
  const Tensor identity = at::eye(d);
  key_weight = register_buffer("key_weight", W);
  query_weight = register_buffer("query_weight", W.repeat_interleave(heads / key_heads, 0));
  query_bias = register_buffer("query_bias", at::zeros({heads, m}));
  key_bias = register_buffer("key_bias", at::zeros({key_heads, m}));
  key_form = register_buffer("key_form", identity.repeat({key_heads, 1, 1}));
  if (config.attention.near == 0) return;
  query_form = register_buffer("query_form", identity.repeat({heads, 1, 1}));
  query_offset = register_buffer("query_offset", at::zeros({heads}));
}

void FittedFeaturesImpl::add_to(FavorOptions& options, const Heads& heads) const {
  options.scale = scale_;
  options.projection_k = key_weight;
  options.bias_q = query_bias, options.bias_k = key_bias;
  options.key_bias = quadratic(heads.k, key_form, scale_);
  if (!query_form.defined()) return;
  options.query_bias = quadratic(heads.q, query_form, scale_) + query_offset.unsqueeze(-1);
}

Tensor FittedFeaturesImpl::log_queries(const Tensor& q) const {
  Tensor log = linear(q, query_weight, query_bias, scale_);
  if (!query_form.defined()) return log;
  const Tensor own = quadratic(q, query_form, scale_) + query_offset.unsqueeze(-1);
  return log + own.unsqueeze(-1);
}

Tensor FittedFeaturesImpl::log_keys(const Tensor& k) const {
  return linear(k, key_weight, key_bias, scale_) + quadratic(k, key_form, scale_).unsqueeze(-1);
}

}  // namespace performer::models
