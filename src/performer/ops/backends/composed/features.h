#pragma once

#include <ATen/core/Tensor.h>

#include "performer/ops/feature_map.h"

namespace performer::composed {

/// The gradient of one block's features, pulled back to the terms the tokens enter through.
struct FeatureGradient {
  Tensor features;  // [..., C, M'] for the argument of each feature, u_r + b_r
  Tensor token;     // [..., C] for the token's own log factor; undefined where the map has none

  void add(const FeatureGradient& other);
};

/// Features of a block of tokens, kept so that no factor over- or underflows:
///   log features      phi = 2^log2
///   all others        phi = value 2^exponent
struct FeatureBlock {
  Tensor x;                   // [..., C, D] the tokens, zeros where masked
  Tensor log2;                // [..., C, M']
  Tensor log2_slope;          // [..., C, M'] of log2 for u log2(e); undefined: 1
  Tensor value;               // [..., C, M']
  Tensor slope;               // [..., C, M'] derivative of value for u
  Tensor exponent;            // [..., C, 1] integers
  bool token_factor = false;  // value carries a differentiable factor of the token (trigonometric)

  /// An upper bound of log2 |phi| up to a constant: [..., C, M'] or [..., C, 1].
  const Tensor& bound() const { return log2.defined() ? log2 : exponent; }
  /// phi 2^shift, integer shift broadcast against [..., C, M'].
  Tensor scaled(const Tensor& shift) const;
  /// The gradient for u from that for ln phi, both of the tokens [start, start + length).
  Tensor chained(const Tensor& grad, std::int64_t start, std::int64_t length) const;
  /// Pulls `grad` (for scaled(shift), which the caller has at hand) back to the block's terms.
  FeatureGradient pull_back(const Tensor& grad, const Tensor& shift, const Tensor& scaled) const;
};

/// How the tokens of one side (queries or keys) become features. Shapes broadcast against x.
struct FeatureSide {
  FeatureMap map = FeatureMap::kPositive;
  double scale = 1.0;
  double eps = 0.0;
  bool norm_term = false;  // keep exp(-+|x|^2/2); queries drop it when the ratio cancels it
  Tensor projection;  // [1|Hs, (1|G,) M, D] times sqrt(scale), natural log units; undefined: u = x
  Tensor bias;        // [1|Hs, (1|G,) 1, M'] or undefined

  /// token_bias: [..., C] added to the log features; mask: bool [..., C], false removes the token.
  FeatureBlock features(const Tensor& x, const Tensor& token_bias, const Tensor& mask) const;

  struct Gradients {
    Tensor x;           // [..., C, D]
    Tensor argument;    // [..., C, M] for u = W x
    Tensor token_bias;  // [..., C]
  };
  Gradients backward(const FeatureBlock& block, const FeatureGradient& grad) const;

 private:
  Tensor project(const Tensor& x) const;
  double norm_sign() const { return map == FeatureMap::kTrigonometric ? 1.0 : -1.0; }
};

}  // namespace performer::composed
