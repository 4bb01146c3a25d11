#pragma once

#include "performer/kernels/scales.h"

// Powers of two, scales and the generalised map, elementwise.
namespace performer::kernels::cuda {

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float quiet_nan() { return __int_as_float(0x7fffffff); }

/// 2^x to 2^-22, relative: 0 below the normal range (and for -inf), inf above, NaN for NaN.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 2^n for integer n, exactly: 0 below the normal range, inf above.
__device__ __forceinline__ float exp2_integer(float n) {
  const float bounded = fminf(fmaxf(n, -127.0F), 128.0F);
  return __int_as_float((static_cast<int>(bounded) + 127) << 23);
}

/// x 2^n in two steps, each with a finite factor: 0 stays 0.
__device__ __forceinline__ float scale_pow2(float x, float n) {
  const float bounded = fmaxf(-252.0F, fminf(252.0F, n));
  const float half = truncf(bounded * 0.5F);
  return x * exp2_integer(half) * exp2_integer(bounded - half);
}

/// The scale of a log2 magnitude: rounded up, within +-2^28. NaN: empty.
__device__ __forceinline__ float round_up_log2(float x) {
  const float up = fminf(fmaxf(ceilf(x), -kScaleLimit), kScaleLimit);
  return x == x ? up : kEmptyScale;
}

/// relu; NaN stays.
__device__ __forceinline__ float relu(float u) { return u <= 0 ? 0 : u; }
__device__ __forceinline__ float relu_slope(float u) { return u > 0 ? 1 : 0; }

}  // namespace performer::kernels::cuda
