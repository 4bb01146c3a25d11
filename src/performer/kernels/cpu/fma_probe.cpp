#include "performer/kernels/cpu/fma_probe.h"

// Compiled with -ffp-contract=fast (CMakeLists.txt): `x * factor + addend` is one instruction.
namespace performer::cpu {
namespace {

constexpr int kChains = 12;  // with factor and addend within the 16 registers of AVX2

template <class Vector>
[[gnu::always_inline]] inline float run_chains(std::int64_t iterations) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  const Vector factor = Vector{} + 0.5F, addend = Vector{} + 1.0F;  // x -> x / 2 + 1 goes to 2
  Vector chains[kChains];
  // No two alike, and none at the fixed point: the compiler would compute those once.
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chains[c] = Vector{} + (static_cast<float>(c) + 2.5F);
  for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chains[c] = chains[c] * factor + addend;
  }
  Vector total{};
  for (const Vector& chain : chains) total += chain;
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += total[lane];
  return sum;
}

template <class Vector>
constexpr std::int64_t kFlops = 2 * kChains * sizeof(Vector) / sizeof(float);

using Vector4 [[gnu::vector_size(16)]] = float;

#ifdef __x86_64__
using Vector8 [[gnu::vector_size(32)]] = float;
using Vector16 [[gnu::vector_size(64)]] = float;

[[gnu::target("avx512f")]] float run_avx512(std::int64_t n) { return run_chains<Vector16>(n); }
[[gnu::target("avx2,fma")]] float run_avx2(std::int64_t n) { return run_chains<Vector8>(n); }
#endif

}  // namespace

FmaProbe fma_probe(std::int64_t iterations) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) {
    return {kFlops<Vector16> * iterations, run_avx512(iterations), "avx512"};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {kFlops<Vector8> * iterations, run_avx2(iterations), "avx2"};
  }
#endif
  return {kFlops<Vector4> * iterations, run_chains<Vector4>(iterations), "portable"};
}

}  // namespace performer::cpu
