#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "performer/ops/favor/attention.h"

/// The definitions, in plain tensor code: slow, direct, differentiable by autograd. Oracle of the
/// tests. Start reading here, and go on in definition.cpp: the whole method on a page.
namespace performer::reference {

/// How to evaluate the definition.
struct Evaluation {
  FavorOptions options;
  /// Absent: float64 throughout. Present: the unfused version in this dtype, which sets what a
  /// fused kernel may lose: float32 arithmetic, features and output rounded once to the dtype.
  std::optional<at::ScalarType> unfused;
  /// int64 [R], ascending: only these rows of q (long sequences); undefined: all.
  Tensor rows;
};

struct Attention {
  Tensor out;          // [B, H, R, Dv]
  Tensor numerator;    // [B, H, R, Dv]  sum_j w_ij v_j, with the paper's constants
  Tensor denominator;  // [B, H, R]      sum_j w_ij
  /// The same sums over |phi_r(x_i) phi_r(y_j) v_j|: what rounding is relative to when features
  /// have signs. Not differentiable.
  Tensor numerator_terms, denominator_terms;
};

/// favor_attention by its definition, every option included:
///   out_i = sum_j w_ij v_j / sum_j w_ij,   w_ij = sum_r phi_r(x_i) phi_r(y_j),
/// the exponents of phi_r(x_i) and phi_r(y_j) added before exp, so that it holds at any norm.
/// O(Lq Lk M') time, in blocks of rows. Keys that a row must not see are left out, never
/// multiplied by 0. Shapes: performer::favor_attention.
Attention favor_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                          const Evaluation& evaluation = {});

/// softmax(scale q k^T) v in float64; of the options, causality, scale and key_mask are used.
/// Rows without keys are 0.
Tensor exact_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const FavorOptions& options = {});

/// The recipe of the authors' code for positive features, in the dtype of q: one maximum per head
/// for the keys, one per row for the queries, eps = 1e-6 added to the features. For comparison
/// only: it is wrong where a query's dominant feature is small in every key, and its causal rows
/// see later keys through the maximum. q, k, v: [B, H, L, .]; W: [M, D] or [H, M, D].
Tensor one_scale_favor_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                                 Causality causality = Causality::kBidirectional);

}  // namespace performer::reference
