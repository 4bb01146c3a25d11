#include "performer/ops/backends/composed/features.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "performer/ops/backends/composed/pow2.h"

namespace performer::composed {
namespace {

// x [..., C, D] times matrix [1|Hs, (1|G,) D, M]; a shared matrix is one product for all heads.
Tensor times_matrix(const Tensor& x, const Tensor& matrix) {
  const auto heads = matrix.numel() / (matrix.size(-1) * matrix.size(-2));
  return at::matmul(x, heads == 1 ? matrix.reshape({matrix.size(-2), matrix.size(-1)}) : matrix);
}

Tensor masked(const Tensor& t, const Tensor& mask, double fill) {
  return mask.defined() ? t.masked_fill(mask.logical_not().unsqueeze(-1), fill) : t;
}

}  // namespace

void FeatureGradient::add(const FeatureGradient& other) {
  features = features + other.features;
  if (other.token.defined()) token = token.defined() ? token + other.token : other.token;
}

Tensor FeatureBlock::scaled(const Tensor& shift) const {
  return log2.defined() ? at::exp2(log2 + shift) : scale_pow2(value, exponent + shift);
}

Tensor FeatureBlock::chained(const Tensor& grad, std::int64_t start, std::int64_t length) const {
  return log2_slope.defined() ? grad * log2_slope.narrow(-2, start, length) : grad;
}

FeatureGradient FeatureBlock::pull_back(const Tensor& grad, const Tensor& shift,
                                        const Tensor& scaled) const {
  if (log2.defined()) return {chained(scaled * grad, 0, grad.size(-2)), {}};
  FeatureGradient out{scale_pow2(slope, exponent + shift) * grad, {}};
  if (token_factor) out.token = (scaled * grad).sum(-1);
  return out;
}

Tensor FeatureSide::project(const Tensor& x) const {
  return projection.defined() ? times_matrix(x, projection.transpose(-1, -2))
                              : x * std::sqrt(scale);
}

FeatureBlock FeatureSide::features(const Tensor& x, const Tensor& token_bias,
                                   const Tensor& mask) const {
  FeatureBlock block;
  block.x = x;
  const Tensor u = project(x);  // [..., C, M]
  if (map == FeatureMap::kExp) {
    Tensor log2 = u * kLog2E;
    if (eps > 0) {  // log2(2^u + eps)
      const Tensor sum = at::logaddexp2(log2, at::full({}, std::log2(eps), u.options()));
      block.log2_slope = at::exp2(log2 - sum);
      log2 = sum;
    }
    block.log2 = masked(log2, mask, -std::numeric_limits<double>::infinity());
    return block;
  }
  if (!is_softmax_map(map)) {
    block.value = masked(apply_elementwise(map, u) + eps, mask, 0.0);
    block.slope = masked(elementwise_slope(map, u), mask, 0.0);
    block.exponent = at::zeros_like(u.narrow(-1, 0, 1));
    return block;
  }

  Tensor token;  // [..., C, 1], the token's own term of the log feature
  if (norm_term) token = norm_sign() * 0.5 * scale * x.square().sum(-1, /*keepdim=*/true);
  if (token_bias.defined()) {
    token = token.defined() ? token + token_bias.unsqueeze(-1) : token_bias.unsqueeze(-1);
  }
  if (map == FeatureMap::kTrigonometric) {
    block.value = at::cat({at::sin(u), at::cos(u)}, -1);
    block.slope = at::cat({at::cos(u), -at::sin(u)}, -1);
    block.exponent = at::zeros_like(u.narrow(-1, 0, 1));
    if (token.defined()) {
      const Tensor token_log2 = token * kLog2E;
      block.exponent = round_up_log2(token_log2);
      const Tensor rest = at::exp2(token_log2 - block.exponent);
      block.value = block.value * rest;
      block.slope = block.slope * rest;
      block.token_factor = true;
    }
    block.value = masked(block.value, mask, 0.0);
    block.slope = masked(block.slope, mask, 0.0);
    return block;
  }

  Tensor log = map == FeatureMap::kHyperbolic ? at::cat({u, -u}, -1) : u;
  if (bias.defined()) log = log + bias;
  if (token.defined()) log = log + token;
  block.log2 = masked(log * kLog2E, mask, -std::numeric_limits<double>::infinity());
  return block;
}

FeatureSide::Gradients FeatureSide::backward(const FeatureBlock& block,
                                             const FeatureGradient& grad) const {
  Gradients out;
  out.argument = grad.features;
  if (map == FeatureMap::kHyperbolic || map == FeatureMap::kTrigonometric) {
    const auto halves = grad.features.chunk(2, -1);
    out.argument = map == FeatureMap::kHyperbolic ? halves[0] - halves[1] : halves[0] + halves[1];
  }
  out.x = projection.defined() ? times_matrix(out.argument, projection)
                               : out.argument * std::sqrt(scale);
  out.token_bias = block.log2.defined() ? grad.features.sum(-1) : grad.token;
  if (norm_term && is_softmax_map(map)) {
    out.x = out.x + (norm_sign() * scale) * out.token_bias.unsqueeze(-1) * block.x;
  }
  return out;
}

}  // namespace performer::composed
