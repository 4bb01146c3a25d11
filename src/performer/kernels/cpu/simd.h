#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "performer/kernels/scales.h"

// One vector register of floats, by the compiler's vector extension, so that the kernels are
// written once. Each instruction set compiles them in a translation unit and namespace of its own
// (isa_*.cpp); no function of the standard library is instantiated there, since the linker might
// hand a copy with wide instructions to code that runs everywhere.
#if defined(__AMX_BF16__) || defined(__AMXBF16__)  // gcc's name, clang's
#define PERFORMER_ISA amx
#define PERFORMER_AMX
#elif defined(__AVX512BF16__)
#define PERFORMER_ISA avx512_bf16
#elif defined(__AVX512F__)
#define PERFORMER_ISA avx512
#elif defined(__AVX2__)
#define PERFORMER_ISA avx2
#else
#define PERFORMER_ISA portable
#endif

namespace performer::kernels::PERFORMER_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kPanelVectors = 4;  // a register block is kBlockRows x kPanelVectors
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
inline constexpr int kPanelVectors = 2;
#else
inline constexpr int kLanes = 4;
inline constexpr int kPanelVectors = 2;
#endif
inline constexpr int kBlockRows = 6;
inline constexpr int kPanel = kPanelVectors * kLanes;

using Vec = float __attribute__((vector_size(kLanes * 4)));
using BitVec = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using LooseVec = float __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
inline Vec splat(float x) { return x - Vec{}; }

/// The larger; b where a is NaN.
inline Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline Vec min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

inline float sum_lanes(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(v);
#else
  float lanes[kLanes];
  store(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
#endif
}

/// The largest lane; NaN lanes are passed over.
inline float max_lanes(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(v);
#else
  float lanes[kLanes];
  store(lanes, v);
  float most = -__builtin_inff();
  for (const float lane : lanes) most = lane > most ? lane : most;
  return most;
#endif
}

/// 2^f on [-1/2, 1/2] to 8e-8, relative.
inline Vec exp2_fraction(Vec f) {
  Vec p = splat(0.0013276471873730237F);
  p = p * f + splat(0.009675541333499016F);
  p = p * f + splat(0.05550713273865454F);
  p = p * f + splat(0.2402211972386379F);
  p = p * f + splat(0.693146967064534F);
  return p * f + splat(1.000000071654677F);
}

/// 2^x: 0 below the normal range, inf above, NaN for NaN.
inline Vec exp2(Vec x) {
#if defined(__AVX512F__)
  const Vec f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT);
  return _mm512_scalef_ps(exp2_fraction(f), x - f);
#else
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const Vec magic = splat(12582912.0F);
  const Vec bounded = min(max(splat(-200.0F), x), splat(200.0F));  // NaN becomes 200
  const Vec shifted = bounded + magic;
  const Vec n = shifted - magic;
  // Casts between vectors of one size keep the bits.
  const BitVec exponent = (BitVec)shifted << 23;                 // NOLINT
  Vec y = (Vec)((BitVec)exp2_fraction(bounded - n) + exponent);  // NOLINT
  y = bounded < splat(-125.5F) ? Vec{} : y;
  y = bounded > splat(127.0F) ? splat(__builtin_inff()) : y;
  return x == x ? y : x;
#endif
}

/// 2^n for integer n, exactly: 0 below the normal range, inf above.
inline float exp2_integer(float n) {
  if (n < -126) return 0;
  if (n > 127) return __builtin_inff();
  const std::int32_t bits = (static_cast<std::int32_t>(n) + 127) << 23;
  float y;
  __builtin_memcpy(&y, &bits, sizeof y);
  return y;
}

/// The scale of a log2 magnitude, as composed/pow2.h defines it: rounded up, within +-2^28.
inline float round_up_log2(float x) {
  if (x != x) return kEmptyScale;
  const float up = __builtin_ceilf(x);
  return up > kScaleLimit ? kScaleLimit : (up < -kScaleLimit ? -kScaleLimit : up);
}

template <class T>
inline T least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
inline T most(T a, T b) {
  return a < b ? b : a;
}
inline constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace performer::kernels::PERFORMER_ISA
