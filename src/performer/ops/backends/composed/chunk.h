#pragma once

#include <ATen/core/Tensor.h>

#include "performer/ops/backends/composed/dense_call.h"

namespace performer::composed {

/// Tokens per chunk of a causal pass.
inline constexpr std::int64_t kChunk = 128;

/// Queries and keys of one chunk, scaled so that their product is a plain matrix product:
///   phi(q_i) . phi(k_j) = 2^(b_i + a_j) q_hat_i . k_hat_j,   q_hat, k_hat <= 1.
/// Features are taken relative to the scales the chunk starts with (of the state, or of the first
/// key where the state is empty), so that nothing here depends on a later token.
struct ChunkPair {
  ChunkPair(const FeatureBlock& queries, const KeyBlock& keys, const Tensor& prior_log2);

  Tensor q_shift, q_hat;  // [B, Hs, G, C, M']
  Tensor k_shift, k_hat;  // [B, Hs, C, M']
  Tensor b;               // [B, Hs, G, C] integers
  Tensor a;               // [B, Hs, C] integers, kEmptyLog2Scale where masked
  Tensor prefix;          // [B, Hs, C] running maximum of a

  Tensor products() const;  // [B, Hs, G, C, C] q_hat . k_hat
};

/// sums 2^log2 = sum over the state and over j <= i of phi(q_i) . phi(k_j) [v_j, 1].
struct RowSums {
  Tensor sums;     // [B, Hs, G, C, Dv + 1]
  Tensor log2;     // [B, Hs, G, C] integers
  Tensor reached;  // bool [B, Hs, 1, 1|C]: the row has keys
};

/// Rows that see what the state holds, and nothing else.
RowSums attend_state(const FeatureBlock& queries, const ScaledSum& state);
/// Rows that see it and the chunk's own keys up to themselves.
RowSums attend_chunk(const FeatureBlock& queries, const KeyBlock& keys, const ScaledSum& state);

/// j <= i, bool [C, C].
Tensor causal_mask(std::int64_t length, at::Device device);

/// [B, Hs, G, C, X] as one matrix per state head, [B, Hs, G*C, X], and back.
Tensor fold_group(const Tensor& t);
Tensor unfold_group(const Tensor& t, std::int64_t group);

}  // namespace performer::composed
