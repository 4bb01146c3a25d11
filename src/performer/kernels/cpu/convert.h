#pragma once

#include "performer/kernels/cpu/simd.h"
#include "performer/kernels/params.h"

// One row of tokens between memory (any dtype and stride) and float32 scratch.
namespace performer::kernels::PERFORMER_ISA {

inline float from_bfloat16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x;
  __builtin_memcpy(&x, &wide, sizeof x);
  return x;
}

/// Rounded to nearest even; NaN stays NaN.
inline std::uint16_t to_bfloat16(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<std::uint16_t>(x != x ? 0x7FC0 | (bits >> 16) : rounded);
}

#if defined(__F16C__)
inline float from_half(std::uint16_t bits) { return _cvtsh_ss(bits); }
inline std::uint16_t to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
inline float from_half(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16;
  const std::uint32_t magnitude = h & 0x7FFF;
  float x;
  if (magnitude >= 0x7C00) {  // inf, NaN
    const std::uint32_t wide = 0x7F800000 | (magnitude << 13);
    __builtin_memcpy(&x, &wide, sizeof x);
  } else {  // 2^112 lifts the exponent, also of subnormal numbers
    const std::uint32_t wide = magnitude << 13;
    __builtin_memcpy(&x, &wide, sizeof x);
    x *= 0x1p112F;
  }
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  bits |= sign;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
inline std::uint16_t to_half(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  bits &= 0x7FFFFFFF;
  if (bits > 0x7F800000) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (bits >= 0x477FF000) return static_cast<std::uint16_t>(sign | 0x7C00);  // 65520 and above
  if (bits < 0x38800000) {  // subnormal: adding 0.5 rounds at 2^-24
    float magnitude;
    __builtin_memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5F;
    __builtin_memcpy(&bits, &magnitude, sizeof bits);
    return static_cast<std::uint16_t>(sign | (bits - 0x3F000000));
  }
  const std::uint32_t rounded = bits + 0xFFF + ((bits >> 13) & 1) - 0x38000000;
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}
#endif

inline void load_row(float* to, const TokenView& view, Dtype dtype, std::int64_t offset,
                     std::int64_t width) {
  const auto step = view.element;
  if (width == 0) return;  // without columns the data may be null
  switch (dtype) {
    case Dtype::kFloat: {
      const auto* from = static_cast<const float*>(view.data) + offset;
      if (step == 1) {
        __builtin_memcpy(to, from, static_cast<std::size_t>(width) * sizeof(float));
      } else {
        for (std::int64_t i = 0; i < width; ++i) to[i] = from[i * step];
      }
      return;
    }
    case Dtype::kBfloat16: {
      const auto* from = static_cast<const std::uint16_t*>(view.data) + offset;
      if (step == 1) {
        for (std::int64_t i = 0; i < width; ++i) to[i] = from_bfloat16(from[i]);
      } else {
        for (std::int64_t i = 0; i < width; ++i) to[i] = from_bfloat16(from[i * step]);
      }
      return;
    }
    case Dtype::kHalf: {
      const auto* from = static_cast<const std::uint16_t*>(view.data) + offset;
      for (std::int64_t i = 0; i < width; ++i) to[i] = from_half(from[i * step]);
      return;
    }
  }
}

inline void store_row(const TokenView& view, Dtype dtype, std::int64_t offset, const float* from,
                      std::int64_t width) {
  const auto step = view.element;
  if (width == 0) return;  // without columns the data may be null
  switch (dtype) {
    case Dtype::kFloat: {
      auto* to = static_cast<float*>(view.data) + offset;
      if (step == 1) {
        __builtin_memcpy(to, from, static_cast<std::size_t>(width) * sizeof(float));
      } else {
        for (std::int64_t i = 0; i < width; ++i) to[i * step] = from[i];
      }
      return;
    }
    case Dtype::kBfloat16: {
      auto* to = static_cast<std::uint16_t*>(view.data) + offset;
      if (step == 1) {
        std::int64_t i = 0;
#if defined(__AVX512BF16__)
        for (; i + kLanes <= width; i += kLanes) {
          const auto narrow = (__m256i)_mm512_cvtneps_pbh(load(from + i));  // NOLINT
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), narrow);
        }
#endif
        for (; i < width; ++i) to[i] = to_bfloat16(from[i]);
      } else {
        for (std::int64_t i = 0; i < width; ++i) to[i * step] = to_bfloat16(from[i]);
      }
      return;
    }
    case Dtype::kHalf: {
      auto* to = static_cast<std::uint16_t*>(view.data) + offset;
      for (std::int64_t i = 0; i < width; ++i) to[i * step] = to_half(from[i]);
      return;
    }
  }
}

}  // namespace performer::kernels::PERFORMER_ISA
