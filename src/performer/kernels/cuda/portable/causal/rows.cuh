#pragma once

#include "performer/kernels/cuda/portable/causal/chunk.cuh"
#include "performer/kernels/cuda/portable/rows.cuh"

// What the causal gradient knows of the rows of a query head: with the incoming gradient g,
// 1 / den = inverse 2^-shift and along = g . out. Rows without keys take no part. along comes from
// the gradient of the queries, which forms it from its own weights: g . v - along nearly cancels
// where one key decides a row, and the output has been rounded to its dtype.
namespace performer::kernels::cuda::portable {

__device__ __forceinline__ float4 fetch4(const Rows& rows, int row, int column) {
  float4 x = make_float4(0, 0, 0, 0);
  with_fetch(rows, AllLive{}, [&](const auto& fetch) { x = fetch(row, column); });
  return x;
}

/// The row of [B, H, L] that row `row` of the chunk is.
__device__ __forceinline__ std::int64_t chunk_row_index(const CausalShared& s, const Problem& p,
                                                        std::int64_t head, int row) {
  return row_index(p, s.segment.span.batch, head, s.segment.span.begin + s.begin + row);
}

/// s.shift and s.inverse of the rows of `head`, by thread t < 64 that of row t; rows beyond the
/// chunk's tokens are rows without keys. No barrier.
__device__ __forceinline__ void load_row_scales(CausalShared& s, const CausalCall& call,
                                                const BackwardInputs& in, std::int64_t head) {
  const Problem& p = call.problem;
  const int row = static_cast<int>(threadIdx.x);
  if (row >= kTile) return;
  float sum = 0;
  std::int32_t log2 = 0;
  if (row < s.count) {
    const std::int64_t at = chunk_row_index(s, p, head, row);
    sum = in.row_sum[at];
    log2 = in.row_log2_scale[at];
  }
  const RowInverse inverse(p.exponential, sum, log2);
  s.inverse[row] = inverse.inverse;
  s.shift[row] = inverse.shift;
}

/// Where along of a row of the chunk lies between the walks: an element of `call.along`, or the
/// first one or two (16-bit) elements of its key's gradient.
struct AlongPlace {
  char* first;
  std::int64_t step;  // bytes to the second; 0: there is one

  __device__ __forceinline__ AlongPlace(const CausalShared& s, const CausalCall& call,
                                        std::int64_t head, int row) {
    const Problem& p = call.problem;
    const TokenView& view = call.keys_along;
    const std::int64_t bytes = bytes_of(p.dtype);
    step = 0;
    if (call.along != nullptr) {
      first = reinterpret_cast<char*>(call.along + chunk_row_index(s, p, head, row));
      return;
    }
    const std::int64_t token = s.segment.span.begin + s.begin + row;
    const std::int64_t at =
        s.segment.span.batch * view.batch + key_head(p, s.segment) * view.head + token * view.token;
    first = static_cast<char*>(view.data) + at * bytes;
    if (bytes == 2) step = view.element * bytes;
  }

  __device__ __forceinline__ float load() const {
    if (step == 0) return *reinterpret_cast<const float*>(first);
    const unsigned low = *reinterpret_cast<const std::uint16_t*>(first);
    const unsigned high = *reinterpret_cast<const std::uint16_t*>(first + step);
    return __int_as_float(static_cast<int>(high << 16U | low));
  }
  __device__ __forceinline__ void store(float x) const {
    if (step == 0) {
      *reinterpret_cast<float*>(first) = x;
      return;
    }
    const auto bits = static_cast<unsigned>(__float_as_int(x));
    *reinterpret_cast<std::uint16_t*>(first) = static_cast<std::uint16_t>(bits);
    *reinterpret_cast<std::uint16_t*>(first + step) = static_cast<std::uint16_t>(bits >> 16U);
  }
};

/// s.along of the rows of `head`, which the gradient of the queries has left; load_row_scales comes
/// before. Ends in a barrier.
__device__ __forceinline__ void load_along(CausalShared& s, const CausalCall& call,
                                           std::int64_t head) {
  const int row = static_cast<int>(threadIdx.x);
  if (row < kTile) {
    const bool present = row < s.count && s.inverse[row] != 0;
    s.along[row] = present ? AlongPlace(s, call, head, row).load() : 0.0F;
  }
  __syncthreads();
}

/// The rows with keys, after load_along. Ends in a barrier.
__device__ __forceinline__ Tokens present_rows(CausalShared& s) {
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
