#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/hopper/arguments.h"

namespace performer::kernels::cuda::hopper {

/// Sums over tokens, for each item, split of its tokens and feature r. Of keys, with the least
/// integers c_r that keep phi <= 1:
///   S_r = sum_j phi_jr v_j,  z_r = sum_j phi_jr,  phi_jr = 2^(l_jr - c_r)
/// Of rows the same of p_ir / den_i, grad_out and -along, with the scales given:
///   dS_r = sum_i p_ir g_i / den_i,  dz_r = -sum_i p_ir along_i / den_i
struct StateArguments {
  Tokens tokens;
  Projection projection;
  int slices = 0;  // of 64 features
  int splits = 1;
  std::int64_t items = 0;
  const std::int32_t* log2_scale = nullptr;  // rows: [sequences * state_heads, features]
  int state_heads = 1, features = 0;
  float* sum = nullptr;         // [items, splits * split_partials, 64 slices, d]
  float* normalizer = nullptr;  // [items, splits * split_partials, 64 slices]
  float* scale = nullptr;       // keys: the same
};

/// Tiles of 64 tokens that split `split` begins with.
__host__ __device__ inline std::int64_t split_begin(std::int64_t length, int split, int splits) {
  return (length + 63) / 64 * split / splits;
}

cudaError_t sum_keys(const StateArguments& arguments, int dim, cudaStream_t stream);
cudaError_t sum_rows(const StateArguments& arguments, int dim, cudaStream_t stream);

/// Warpgroups of a block that own features.
inline constexpr int kStateConsumers = 2;
/// Slices of 64 features in one block: as many as have room for W and S in registers.
__host__ __device__ constexpr int block_slices(int dim, int slices) {
  return dim < 128 && slices % 4 == 0 ? 4 : (slices % 2 == 0 ? 2 : 1);
}
/// Partial sums of a split: consumers that share a slice keep their own.
__host__ __device__ constexpr int split_partials(int dim, int slices) {
  return block_slices(dim, slices) == 1 ? kStateConsumers : 1;
}
/// 64-feature slices, rounded up to what the kernels are built for.
int padded_slices(int dim, std::int64_t features);

}  // namespace performer::kernels::cuda::hopper
