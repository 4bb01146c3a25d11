#pragma once

#include <ATen/core/Tensor.h>

#include "performer/ops/backends/composed/backward.h"
#include "performer/ops/backends/composed/chunk.h"

namespace performer::composed {

/// Per query row of a block: the incoming gradient and the denominator as inverse 2^-log2.
struct RowGradient {
  Tensor grad;     // [B, Hs, G, C, Dv] do
  Tensor delta;    // [B, Hs, G, C, 1] do . o
  Tensor inverse;  // [B, Hs, G, C]
  Tensor log2;     // [B, Hs, G, C] integers

  Tensor g() const;  // [B, Hs, G, C, Dv + 1] G = [do, -do . o]
};

/// The rows of one block; `delta` is a buffer [B, H, Lq] that the pass over queries fills.
RowGradient load_rows(const DenseCall& p, const BackwardInputs& in, const Tensor& delta,
                      Block block);

/// The part of a block's attention that comes from a state.
struct StateGradient {
  StateGradient(const FeatureBlock& queries, const RowGradient& rows, const ScaledSum& state);

  Tensor delta() const;  // [B, Hs, G, C, 1] its part of do . o
  FeatureGradient pull_back(const FeatureBlock& queries, const Tensor& delta) const;

  Tensor shift, weights;  // [B, Hs, G, C, M']
  Tensor values;          // [B, Hs, G, C, M'] do . S_r
  Tensor normalizer;      // [B, Hs, 1, 1, M']
  Tensor inverse;         // [B, Hs, G, C, 1]
};

/// The part of a chunk's attention that its own keys carry:
///   weights_ij = phi(q_i) . phi(k_j) / den_i = products_ij coefficient_ij.
struct ChunkGradient {
  ChunkGradient(const FeatureBlock& queries, const KeyBlock& keys, const RowGradient& rows,
                const Tensor& prior_log2);

  /// p_ir phi_r(k_j) of an exact row, 0 in the heads where the row is not: [B, Hs, G, i + 1, M'].
  Tensor exact_weights(const FeatureBlock& queries, const KeyBlock& keys, const RowGradient& rows,
                       std::int64_t row) const;

  ChunkPair pair;
  Tensor coefficient;                    // [B, Hs, G, C, C], 0 for later keys and exact rows
  Tensor weights;                        // [B, Hs, G, C, C]
  Tensor values;                         // [B, Hs, G, C, C] do_i . v_j, 0 for later keys
  Tensor exact;                          // bool [B, Hs, G, C], defined with exact_rows
  std::vector<std::int64_t> exact_rows;  // rows that go feature by feature
};

/// Gradients of a block of keys and of its values.
struct KeyGradient {
  FeatureGradient features;
  Tensor values;  // [B, Hs, C, Dv]
};
/// What the rows summed up in `later` leave to the keys that they all see.
KeyGradient key_gradient_from_later(const KeyBlock& keys, const ScaledSum& later);

/// sum_i p_i G_i of one block of queries, scaled per feature as a state is.
ScaledSum sum_queries(const FeatureBlock& queries, const RowGradient& rows);

/// rows [B, Hs, G, C, X] times matrix [B, Hs, X, Y].
Tensor multiply_grouped(const Tensor& rows, const Tensor& matrix);

}  // namespace performer::composed
