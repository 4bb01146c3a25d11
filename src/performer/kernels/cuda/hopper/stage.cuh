#pragma once

#include "performer/kernels/cuda/hopper/tile.cuh"

// 64 tokens in shared memory, and what goes with them.
namespace performer::kernels::cuda::hopper {

enum class Kind {
  kKeys,     // x = k, y = v
  kQueries,  // x = q
  kRows,     // x = q, y = grad_out; along = grad_out . out
  kSums,     // the same, along given
};

/// One stage of the ring.
template <int kDim, Kind kKind>
struct Stage {
  static constexpr bool kPaired = kKind != Kind::kQueries;
  static constexpr int kTerms = kPaired ? 2 * Tile<kDim>::kBytes : Tile<kDim>::kBytes;
  static constexpr int kWeights = kTerms + 256;
  static constexpr int kBytes = kTerms + 1024;

  char* at;

  __device__ char* x() const { return at; }
  __device__ char* y() const { return at + Tile<kDim>::kBytes; }
  /// Added to the exponents of a token: -inf where it takes no part.
  __device__ float* terms() const { return reinterpret_cast<float*>(at + kTerms); }
  /// Rows: -along.
  __device__ float* weights() const { return reinterpret_cast<float*>(at + kWeights); }
};

}  // namespace performer::kernels::cuda::hopper
