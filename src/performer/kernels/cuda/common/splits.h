#pragma once

#include <cstdint>

// Into how many parts work is cut that has too few pieces for the multiprocessors.
namespace performer::kernels::cuda {

template <class A, class B>
__host__ __device__ constexpr auto divide_up(A a, B b) {
  return (a + b - 1) / b;
}

/// The number of parts from 1 to `most` (at least 1) with the least cost(parts). Parts take memory:
/// more of them must cost less than `twentieths` / 20 of the best number before.
template <class Cost>
int cheapest_parts(std::int64_t most, int twentieths, const Cost& cost) {
  std::int64_t best = 1, least = cost(1);
  for (std::int64_t parts = 2; parts <= most; ++parts) {
    const std::int64_t own = cost(parts);
    if (own * 20 < least * twentieths) best = parts, least = own;
  }
  return static_cast<int>(best);
}

}  // namespace performer::kernels::cuda
