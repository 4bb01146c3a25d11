#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "performer/ops/favor/attention.h"

namespace performer {

/// Options of exact attention, with the meanings of FavorOptions; undefined tensors are absent.
struct ExactOptions {
  Causality causality = Causality::kBidirectional;
  std::optional<double> scale;  // default 1/sqrt(D)
  Tensor key_mask;              // bool [B, Lk], true = a real key
  Tensor key_bias;              // [B, Lk] or [B, 1|Hkv|H, Lk], added to the logits; -inf removes
};

/// Softmax attention (paper, eq. 1 and 2): out_i = sum_j exp(scale q_i.k_j) v_j / sum_j exp(scale
/// q_i.k_j), j <= i when causal. q: [B, H, Lq, D];  k: [B, Hkv, Lk, D];  v: [B, Hkv, Lk, Dv];
/// returns [B, H, Lq, Dv] in q's dtype. O(Lq Lk (D + Dv)) time by blocks of rows: no tensor of Lq x
/// Lk elements. Differentiable. A row without keys is 0.
Tensor exact_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const ExactOptions& options = {});

}  // namespace performer
