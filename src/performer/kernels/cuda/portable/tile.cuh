#pragma once

// Products of 64 x 64 tiles by one block of 256 threads, float32 multiply-adds.
//
// Operands lie in shared memory with their depth first: a[k * kStride + row], b[k * kStride + col].
// A thread owns rows row0()..+3 (of every 64-row tile of a) and columns col0()..+3 of the result.
// Lanes of equal parity in a warp share their rows: a row of a result is spread over the 16 lanes
// of one parity, so that reductions over its columns are shuffles. Reads of a take one wavefront,
// those of b two; row-major stores have no bank conflicts, transposed ones are two-way.
namespace performer::kernels::cuda::portable {

inline constexpr int kTile = 64;
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kStride = 68;                   // floats; rows stay on 16 bytes
inline constexpr int kTileFloats = kTile * kStride;  // of one tile in shared memory
inline constexpr int kTileBytes = kTileFloats * 4;   // 17,408

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x & 31U); }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x >> 5U); }
__device__ __forceinline__ int row0() { return 4 * (2 * warp_id() + (lane_id() & 1)); }
__device__ __forceinline__ int col0() { return 4 * (lane_id() >> 1); }

/// The row of a result that acc[i] holds: results of R = 8 rows a thread are two tiles, one below
/// the other (a: two tiles of kTileFloats).
__device__ __forceinline__ int row_of(int i) { return row0() + (i & 3) + kTile * (i >> 2); }

/// Four floats of shared memory.
__device__ __forceinline__ void load_four(float (&x)[4], const float* from) {
  const float4 y = *reinterpret_cast<const float4*>(from);
  x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
}

template <int R>
__device__ __forceinline__ void clear(float (&acc)[R][4]) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0;
  }
}

/// acc[i][j] += sum_{k < depth} a[k][row_of(i)] b[k][col0() + j]. R is 4, or 8 with a of two tiles.
template <int R>
__device__ __forceinline__ void gemm(float (&acc)[R][4], const float* a, const float* b,
                                     int depth) {
  static_assert(R == 4 || R == 8);
  const float* a_row = a + row0();
  const float* b_col = b + col0();
  const auto step = [&](int k) {
    const float4 y = *reinterpret_cast<const float4*>(b_col + k * kStride);
    float x[R];
#pragma unroll
    for (int i = 0; i < R; i += 4) {
      const float4 part =
          *reinterpret_cast<const float4*>(a_row + (i / 4) * kTileFloats + k * kStride);
      x[i] = part.x, x[i + 1] = part.y, x[i + 2] = part.z, x[i + 3] = part.w;
    }
#pragma unroll
    for (int i = 0; i < R; ++i) {
      acc[i][0] = fmaf(x[i], y.x, acc[i][0]);
      acc[i][1] = fmaf(x[i], y.y, acc[i][1]);
      acc[i][2] = fmaf(x[i], y.z, acc[i][2]);
      acc[i][3] = fmaf(x[i], y.w, acc[i][3]);
    }
  };
  int k = 0;
#pragma unroll 1
  for (; k + 8 <= depth; k += 8) {
#pragma unroll
    for (int n = 0; n < 8; ++n) step(k + n);
  }
#pragma unroll 1
  for (; k < depth; ++k) step(k);
}

/// tile[row][col]; R = 8: two tiles.
template <int R>
__device__ __forceinline__ void store_acc(const float (&acc)[R][4], float* tile) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    *reinterpret_cast<float4*>(tile + (i >> 2) * kTileFloats + (row0() + (i & 3)) * kStride +
                               col0()) = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
  }
}

/// tile[col][row]: rows become the first operand's rows of the product that follows, columns its
/// depth. R = 8: two tiles, of the rows 0..63 and 64..127.
template <int R>
__device__ __forceinline__ void store_acc_transposed(const float (&acc)[R][4], float* tile) {
#pragma unroll
  for (int i = 0; i < R; i += 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      *reinterpret_cast<float4*>(tile + (i >> 2) * kTileFloats + (col0() + j) * kStride + row0()) =
          make_float4(acc[i][j], acc[i + 1][j], acc[i + 2][j], acc[i + 3][j]);
    }
  }
}

/// Over the 16 lanes that share the caller's rows; all of them get the result, the same bits.
__device__ __forceinline__ float row_lanes_max(float x) {
#pragma unroll
  for (int mask = 2; mask < 32; mask *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, mask));
  return x;
}
__device__ __forceinline__ float row_lanes_sum(float x) {
#pragma unroll
  for (int mask = 2; mask < 32; mask *= 2) x += __shfl_xor_sync(0xffffffffU, x, mask);
  return x;
}

template <int R>
__device__ __forceinline__ void row_sum(const float (&acc)[R][4], float (&sum)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    sum[i] = row_lanes_sum((acc[i][0] + acc[i][1]) + (acc[i][2] + acc[i][3]));
  }
}

/// Column reductions: every warp leaves its part in parts[kWarps][kTile]; after __syncthreads()
/// any thread reads a column's result.
template <int R>
__device__ __forceinline__ void column_sum_parts(const float (&acc)[R][4], float* parts) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float x = 0;
#pragma unroll
    for (int i = 0; i < R; ++i) x += acc[i][j];
    x += __shfl_xor_sync(0xffffffffU, x, 1);
    if ((lane_id() & 1) == 0) parts[warp_id() * kTile + col0() + j] = x;
  }
}
template <int R>
__device__ __forceinline__ void column_max_parts(const float (&acc)[R][4], float* parts) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float x = acc[0][j];
#pragma unroll
    for (int i = 1; i < R; ++i) x = fmaxf(x, acc[i][j]);
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
    if ((lane_id() & 1) == 0) parts[warp_id() * kTile + col0() + j] = x;
  }
}
__device__ __forceinline__ float column_sum(const float* parts, int column) {
  float x = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) x += parts[w * kTile + column];
  return x;
}
__device__ __forceinline__ float column_max(const float* parts, int column) {
  float x = parts[column];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) x = fmaxf(x, parts[w * kTile + column]);
  return x;
}

}  // namespace performer::kernels::cuda::portable
