#pragma once

#include "performer/kernels/cuda/portable/causal_chunk.cuh"
#include "performer/kernels/cuda/portable/rows.cuh"

// What the causal gradient knows of the rows of a query head: with the incoming gradient g,
// 1 / den = inverse 2^-shift and along = g . out. Rows without keys take no part.
namespace performer::kernels::cuda::portable {

__device__ __forceinline__ float4 fetch4(const Rows& rows, int row, int column) {
  float4 x = make_float4(0, 0, 0, 0);
  with_fetch(rows, AllLive{}, [&](const auto& fetch) { x = fetch(row, column); });
  return x;
}

/// s.shift, s.inverse, s.along of the rows of `head`, s.out and s.gradient (begin_head); those
/// beyond the chunk's tokens are rows without keys. Returns the rows with keys. g . out is added up
/// in the order of g . v in a product of tiles, so that the two nearly cancel where one key decides
/// a row. Tiles 2 and 3. Starts and ends with a barrier.
__device__ __forceinline__ Tokens load_row_terms(CausalShared& s, const CausalCall& call,
                                                 const BackwardInputs& in, std::int64_t head) {
  const Problem& p = call.problem;
  const int row = static_cast<int>(threadIdx.x);
  float dot = 0;
  for (int column = 0; column < p.value_dim; column += kTile) {
    __syncthreads();
    load_columns(s.tile(2), s.gradient, column);
    load_columns(s.tile(3), s.out, column);
    __syncthreads();
    if (row >= kTile) continue;
    const float* g = s.tile(2) + row;
    const float* x = s.tile(3) + row;
#pragma unroll 8
    for (int e = 0; e < kTile; ++e) dot = fmaf(g[e * kStride], x[e * kStride], dot);
  }
  if (row < kTile) {
    float sum = 0;
    std::int32_t log2 = 0;
    if (row < s.count) {
      const std::int64_t at =
          row_index(p, s.segment.span.batch, head, s.segment.span.begin + s.begin + row);
      sum = in.row_sum[at];
      log2 = in.row_log2_scale[at];
    }
    const RowInverse inverse(p.exponential, sum, log2);
    s.inverse[row] = inverse.inverse;
    s.shift[row] = inverse.shift;
    s.along[row] = sum == 0 ? 0.0F : dot;
  }
  __syncthreads();
  return gather_tokens(s, s.inverse[threadIdx.x / 4] != 0);
}

/// p / den, in place of l (or u), rows features, columns query rows: inverse 2^(l - scale_row -
/// shift) of the rows of the bits, 0 for others.
__device__ __forceinline__ void make_row_weights(float (&l)[4][4], const CausalShared& s,
                                                 const Problem& p, int first,
                                                 const float (&scale)[4], unsigned bits) {
  const float minus[4] = {-scale[0], -scale[1], -scale[2], -scale[3]};
  make_query_features(l, p, first, minus, s.shift);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float inverse = s.inverse[col0() + j];
    const bool present = (bits >> j & 1U) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) l[i][j] = present ? l[i][j] * inverse : 0.0F;
  }
}

/// Adds sum over columns of x along to `sum`: the thread's rows.
__device__ __forceinline__ void sum_along(float (&sum)[4], const float (&x)[4][4],
                                          const CausalShared& s) {
  float product[4][4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float along = s.along[col0() + j];
#pragma unroll
    for (int i = 0; i < 4; ++i) product[i][j] = x[i][j] * along;
  }
  row_sum(product, sum);
}

}  // namespace performer::kernels::cuda::portable
