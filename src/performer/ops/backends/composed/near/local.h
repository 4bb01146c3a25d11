#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/ops/backends/composed/chunk.h"
#include "performer/ops/backends/composed/dense_call.h"

namespace performer::composed {

/// The keys that a block of queries sees exactly: consecutive slots [B, Hs, N, ...].
struct LocalKeys {
  Tensor x;             // [B, Hs, N, D]
  Tensor values;        // [B, Hs, N, Dv + 1], the last column 1
  Tensor bias;          // [B, 1|Hs, N] key_bias; undefined: 0
  Tensor mask;          // bool [B, 1|Hs, N]
  std::int64_t before;  // causal: query i sees the first before + i + 1 of them; else -1: all
};

/// Exact scores of one block, in units of log2: rows that see no key have scores of -inf.
class LocalScores {
 public:
  /// q: [B, Hs, G, C, D].
  LocalScores(const Tensor& q, const LocalKeys& keys, double scale);

  /// sums 2^log2 = sum_j exp(scale q_i.k_j + bias_j) [v_j, 1].
  RowSums sums() const;

  struct Gradients {
    Tensor q;             // [B, Hs, G, C, D]
    Tensor keys, values;  // [B, Hs, N, D], [B, Hs, N, Dv]
    Tensor bias;          // [B, Hs, N]
  };
  /// `inverse` 2^-log2 is one over the denominator of a row, `delta` = do . o, and grad = do:
  ///   d score_ij = p_ij (do_i . v_j - delta_i),   p_ij = exp(score_ij) / den_i.
  Gradients backward(const Tensor& grad, const Tensor& delta, const Tensor& inverse,
                     const Tensor& log2) const;

 private:
  Tensor q_;
  const LocalKeys& keys_;
  double scale_;
  Tensor seen_;  // bool, broadcasts against [B, Hs, G, C, N]
  Tensor log2_;  // [B, Hs, G, C, N]
};

}  // namespace performer::composed
