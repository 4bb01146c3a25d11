#pragma once

#include "performer/kernels/cuda/portable/causal/shared.cuh"

// 64 x 64 tiles between global memory and registers. Features of a chunk lie in the block's
// scratch, feature-major [mp][64]: as rows of a result they are features, as columns tokens. Where
// a thread reads there what it wrote itself (rows row0().., columns col0()..), no barrier is
// needed.
namespace performer::kernels::cuda::portable {

/// Floats of a slice of features in the scratch.
inline constexpr int kTileArea = kTile * kTile;

/// acc += a b over a whole tile of depth.
__device__ __forceinline__ void product(float (&acc)[4][4], const float* a, const float* b) {
  gemm(acc, a, b, opaque(kTile));
}

/// The thread's part of a 64 x 64 tile in global memory.
__device__ __forceinline__ void load_tile(float (&acc)[4][4], const float* from, int stride) {
  from += opaque(row0()) * stride + opaque(col0());
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 x = *reinterpret_cast<const float4*>(from + i * stride);
    acc[i][0] = x.x, acc[i][1] = x.y, acc[i][2] = x.z, acc[i][3] = x.w;
  }
}
__device__ __forceinline__ void store_tile(const float (&acc)[4][4], float* to, int stride) {
  to += opaque(row0()) * stride + opaque(col0());
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<float4*>(to + i * stride) =
        make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
  }
}
/// The thread's rows of an array, from `first` on.
__device__ __forceinline__ void load_rows_of(float (&x)[4], const float* from, int first) {
  load_four(x, from + first + row0());
}
/// The largest of four columns that the bits name; -inf where they name none.
__device__ __forceinline__ float largest_of(const float (&l)[4], unsigned bits) {
  float most = -infinity();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if ((bits >> j & 1U) != 0) most = fmaxf(most, l[j]);
  }
  return most;
}
/// [row][key]: 0 where the key comes after the row.
__device__ __forceinline__ void clear_later(float (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (col0() + j > row0() + i) x[i][j] = 0;
    }
  }
}
__device__ __forceinline__ void multiply_rows(float (&acc)[4][4], const float (&factor)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] *= factor[i];
  }
}

/// Rows of features beyond m stay 0, whatever values 0 was multiplied with.
__device__ __forceinline__ void clear_beyond(float (&acc)[4][4], const Problem& p, int first) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + row0() + i < p.features) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0;
  }
}

}  // namespace performer::kernels::cuda::portable
