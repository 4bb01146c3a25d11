#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "performer/ops/exact/attention.h"
#include "performer/ops/favor/attention.h"

namespace performer {

/// Which part of the Lq x Lk matrix to return; undefined: all of it.
struct MapSelection {
  Tensor rows, columns;  // int64 or int32 [n]: query and key positions, in any order
  /// Instead of rows and columns: one entry for each block of pool x pool, the mean over its rows
  /// of the sum over its columns, so that pooled rows sum to 1 too. Blocks at the end may be cut.
  std::optional<std::int64_t> pool;
};

/// The attention matrix that favor_attention applies, with its options:
///   A_ij = phi(x_i).phi(y_j) / sum_l phi(x_i).phi(y_l),   j <= i when causal,
/// with exp(scale q_i.k_j) in the place of phi(x_i).phi(y_j) where a near field sees the pair, by
/// giving it one-hot values, a block of columns at a time (paper, Appendix C). Returns [B, H,
/// |rows|, |columns|], float64 for float64 input, else float32. Rows of the whole A sum to 1; one
/// without keys is 0. O(L M' (D + |columns|)) time; no Lq x Lk tensor unless that is what is asked
/// for (causal, or with a near field: blocks of all rows are computed and the chosen ones kept).
/// Differentiable. Packed sequences and an initial state are refused.
Tensor attention_map(const Tensor& q, const Tensor& k, const Tensor& W,
                     const FavorOptions& options = {}, const MapSelection& selection = {});

/// The same part of the exact softmax matrix (paper, eq. 1 and 2).
Tensor exact_attention_map(const Tensor& q, const Tensor& k, const ExactOptions& options = {},
                           const MapSelection& selection = {});

}  // namespace performer
