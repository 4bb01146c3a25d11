#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "performer/kernels/cuda/decode/plan.h"

// u = W x of the features of a slice, for the key and queries of a state head. W comes from the L2
// cache, where all heads find it: a row by 8 lanes, each line once for all vectors that share it.
namespace performer::kernels::cuda::decode {

inline constexpr int kLanes = 8;                 // of a row
inline constexpr int kRowsAtOnce = 32 / kLanes;  // of a warp
inline constexpr int kPending = 4;               // loads of a lane before the first is used

__device__ __forceinline__ float load_element(const void* data, Dtype dtype, std::int64_t i) {
  if (dtype == Dtype::kFloat) return static_cast<const float*>(data)[i];
  if (dtype == Dtype::kHalf) return __half2float(static_cast<const __half*>(data)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
}
__device__ __forceinline__ void store_element(void* data, Dtype dtype, std::int64_t i, float x) {
  if (dtype == Dtype::kFloat) {
    static_cast<float*>(data)[i] = x;
  } else if (dtype == Dtype::kHalf) {
    static_cast<__half*>(data)[i] = __float2half_rn(x);
  } else {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(x);
  }
}

/// The rows of W of one head: feature r is row r, or where r >= half minus row r - half.
struct Weights {
  const float* w;  // [half, d]; null: the identity
  int d, half;
  bool vectors;

  __device__ __forceinline__ Weights(const Step& step, const Parameter& parameter, int head)
      : w(static_cast<const float*>(parameter.data)),
        d(step.dim),
        half(step.problem.mirrored ? step.features / 2 : step.features) {
    if (w != nullptr) w += static_cast<std::int64_t>(head) * half * d;
    vectors = d % 4 == 0 && reinterpret_cast<std::uintptr_t>(w) % 16 == 0;
  }

  /// Where the row of feature r begins.
  __device__ __forceinline__ int row(int r) const { return (r < half ? r : r - half) * d; }

  /// Columns column..+3 of the row that begins at `row`; 0 beyond d.
  __device__ __forceinline__ float4 operator()(int row, int column) const {
    const float* from = w + row + column;
    if (vectors) return __ldg(reinterpret_cast<const float4*>(from));
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = column + i < d ? __ldg(from + i) : 0.0F;
    return make_float4(x[0], x[1], x[2], x[3]);
  }
};

/// u[j][i] = W x[j] of feature first + i, i < count. Rows of x lie `dim` floats apart, rows of u
/// `slice`.
template <int kVectors>
__device__ __forceinline__ void project(const Weights& w, const float* x, int dim, float* u,
                                        int slice, int first, int count) {
  if (w.w == nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) u[j * slice + i] = x[j * dim + first + i];
    }
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, part = lane % kLanes;
  const int own = static_cast<int>(threadIdx.x) / kLanes;
  for (int base = 0; base < count; base += kPending * kWarps * kRowsAtOnce) {
    // Lanes without a feature repeat the last one.
    int rows[kPending];
#pragma unroll
    for (int n = 0; n < kPending; ++n) {
      rows[n] = w.row(first + min(base + n * kWarps * kRowsAtOnce + own, count - 1));
    }
    float sum[kPending][kVectors] = {};
#pragma unroll 1
    for (int column = 4 * part; column < dim; column += 4 * kLanes) {
      float4 row[kPending];
#pragma unroll
      for (int n = 0; n < kPending; ++n) row[n] = w(rows[n], column);
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const float4 y = *reinterpret_cast<const float4*>(x + j * dim + column);
#pragma unroll
        for (int n = 0; n < kPending; ++n) {
          sum[n][j] = fmaf(row[n].x, y.x, fmaf(row[n].y, y.y, sum[n][j]));
          sum[n][j] = fmaf(row[n].z, y.z, fmaf(row[n].w, y.w, sum[n][j]));
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kPending; ++n) {
      const int i = base + n * kWarps * kRowsAtOnce + own;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        float total = sum[n][j];
        total += __shfl_xor_sync(0xffffffffU, total, 1);
        total += __shfl_xor_sync(0xffffffffU, total, 2);
        total += __shfl_xor_sync(0xffffffffU, total, 4);
        if (part == 0 && i < count) u[j * slice + i] = first + i < w.half ? total : -total;
      }
    }
  }
}

}  // namespace performer::kernels::cuda::decode
