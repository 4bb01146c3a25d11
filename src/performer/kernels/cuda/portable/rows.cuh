#pragma once

#include "performer/kernels/cuda/portable/tokens.cuh"

// What passes share about blocks of features, states and rows of the output.
namespace performer::kernels::cuda::portable {

/// Up to 128 features from `first` on of a state's (or gradient's) S [m, dv], as rows.
__device__ __forceinline__ Rows state_rows(const Problem& p, const float* kv, std::int64_t index,
                                           int first) {
  const TokenView view{const_cast<float*>(kv), 0, 0, p.value_dim, 1};
  return rows_of(view, Dtype::kFloat, 0, 0, index * p.features + first, p.features - first,
                 p.value_dim);
}

/// A tile of `tokens` tokens of a sequence.
struct SequenceTile {
  std::int64_t sequence, begin;
};

/// How many slots the tiles of all sequences take; find_tile tells which tile a slot has.
__host__ __device__ inline std::int64_t tile_slots(const std::int64_t* offsets,
                                                   std::int64_t sequences, std::int64_t total,
                                                   int tokens) {
  if (offsets == nullptr) return sequences * ((total + tokens - 1) / tokens);
  return sequences == 0 ? 0 : total / tokens + sequences;
}

/// Packed sequence n has the slots from offset[n] / tokens + n on: enough for its tiles, and in the
/// order of sequences, so that a search finds n. Where a slot has no tile, begin lies beyond the
/// length.
__device__ __forceinline__ SequenceTile find_tile(const std::int64_t* offsets,
                                                  std::int64_t sequences, std::int64_t total,
                                                  int tokens, std::int64_t slot) {
  if (offsets == nullptr) {
    const std::int64_t tiles = (total + tokens - 1) / tokens;
    return {slot / tiles, slot % tiles * tokens};
  }
  const auto start = [&](std::int64_t n) {
    return make_span(offsets, n, total).begin / tokens + n;
  };
  std::int64_t low = 0, high = sequences - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (start(middle) <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const std::int64_t tile = slot - start(low);
  return {low, tile < 0 ? total : tile * tokens};
}

/// 1 / den = inverse 2^-shift of a row, den = sum 2^log2. A row without keys takes no part:
/// inverse 0, and shift inf so that its exponentials are 0.
struct RowInverse {
  float inverse, shift;

  __device__ __forceinline__ RowInverse(bool exponential, float sum, std::int32_t log2) {
    int exponent = 0;
    const float divisor = exponential ? frexpf(sum, &exponent) : sum;
    inverse = sum == 0 ? 0.0F : 1.0F / divisor;
    shift = 0;
    if (exponential) {
      shift =
          sum == 0 ? infinity() : static_cast<float>(static_cast<std::int64_t>(log2) + exponent);
    }
  }
};

/// The row of [B, H, Lq] that token `token` of the batch entry is.
__device__ __forceinline__ std::int64_t row_index(const Problem& p, std::int64_t batch,
                                                  std::int64_t head, std::int64_t token) {
  return (batch * p.heads + head) * p.query_length + token;
}

}  // namespace performer::kernels::cuda::portable
