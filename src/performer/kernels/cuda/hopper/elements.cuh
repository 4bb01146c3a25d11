#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "performer/kernels/cuda/hopper/arguments.h"
#include "performer/kernels/cuda/hopper/ptx.cuh"

// Pairs of 16-bit numbers, and chunks of 8 of them in rows of any strides.
namespace performer::kernels::cuda::hopper {

template <bool kHalf>
__device__ inline float2 unpack(std::uint32_t pair) {
  if constexpr (kHalf) return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000U)};
}

__device__ inline float2 unpack(std::uint32_t pair, bool half) {
  return half ? unpack<true>(pair) : unpack<false>(pair);
}

__device__ inline uint4 half_to_bf16(uint4 raw) {
  const auto convert = [](std::uint32_t pair) {
    const float2 f = unpack<true>(pair);
    return pack_bf16(f.x, f.y);
  };
  return {convert(raw.x), convert(raw.y), convert(raw.z), convert(raw.w)};
}

template <bool kLeftHalf, bool kRightHalf>
__device__ inline float dot(uint4 a, uint4 b) {
  const auto pair = [](std::uint32_t x, std::uint32_t y, float sum) {
    const float2 f = unpack<kLeftHalf>(x), g = unpack<kRightHalf>(y);
    return fmaf(f.x, g.x, fmaf(f.y, g.y, sum));
  };
  return pair(a.x, b.x, pair(a.y, b.y, pair(a.z, b.z, pair(a.w, b.w, 0))));
}

/// 8 elements of a row of any strides.
__device__ inline uint4 gather_chunk(const Source& s, const std::uint16_t* row, int chunk) {
  const auto pair = [&](std::int64_t first) {
    return static_cast<std::uint32_t>(row[first * s.element]) |
           static_cast<std::uint32_t>(row[(first + 1) * s.element]) << 16;
  };
  const std::int64_t first = 8 * chunk;
  return {pair(first), pair(first + 2), pair(first + 4), pair(first + 6)};
}

__device__ inline void store_chunk(const Target& t, std::uint16_t* row, int chunk, uint4 value) {
  if (t.vector) {
    reinterpret_cast<uint4*>(row)[chunk] = value;
    return;
  }
  const std::uint32_t pairs[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t first = 8 * chunk + 2 * i;
    row[first * t.element] = static_cast<std::uint16_t>(pairs[i]);
    row[(first + 1) * t.element] = static_cast<std::uint16_t>(pairs[i] >> 16);
  }
}

}  // namespace performer::kernels::cuda::hopper
