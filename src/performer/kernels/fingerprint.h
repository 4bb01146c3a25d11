#pragma once

#include <cstdint>

// The hash of a call's parameters, in terms that no order of summation changes, so that the CPU and
// a GPU find the same number:
//   hash <- mix(hash, sum of all bit patterns)
//   hash <- mix(hash, sum_i sample(i, bits of sample i))
// tensor by tensor, from a seed that holds shapes and options. Bit patterns of float32 are
// sign-extended to 64 bits; sums are modulo 2^64. constexpr functions run on both.
namespace performer::kernels {

/// Parameters of a call that its keys' features depend on: W, projection_k, bias_k.
inline constexpr int kFingerprintTensors = 3;

/// splitmix64's finaliser: every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash += word + 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

/// Evenly spaced values, at most 1024 of `count`. A sum of bit patterns cannot see a permutation;
/// these can.
constexpr std::int64_t sample_stride(std::int64_t count) { return count / 1024 + 1; }
constexpr std::int64_t sample_count(std::int64_t count) {
  return (count + sample_stride(count) - 1) / sample_stride(count);
}
constexpr std::uint64_t sample(std::int64_t index, std::uint64_t bits) {
  return mix(static_cast<std::uint64_t>(index) * 0xd1342543de82ef95ULL, bits);
}

}  // namespace performer::kernels
