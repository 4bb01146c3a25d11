#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/hopper/arguments.h"

namespace performer::kernels::cuda::hopper {

/// The state of an item from the partial sums of its tokens (state.h) and the initial state.
struct MergeArguments {
  const float *sum = nullptr, *normalizer = nullptr, *scale = nullptr;  // partials
  int partials = 1, slices = 0, features = 0;
  std::int64_t items = 0;
  StateView initial, state;
  // [items, slices] SumTile<d> of S / z, its columns divided by `factor`.
  std::uint16_t* tiles = nullptr;
  float* factor = nullptr;  // [items, d] powers of two
  float* column = nullptr;  // [items, 64 slices] c + log2 z; -inf where there is no key
};

cudaError_t merge_states(const MergeArguments& arguments, int dim, cudaStream_t stream);

/// Backward: tiles of S / z, from the state.
struct StateTileArguments {
  StateView state;
  int slices = 0, features = 0;
  std::int64_t items = 0;
  std::uint16_t* tiles = nullptr;  // [items, slices] Tile<d>
  float* column = nullptr;         // as above
};

cudaError_t pack_state(const StateTileArguments& arguments, int dim, cudaStream_t stream);

/// Backward: dS and dz of an item in the scales of its state, from the partials of its query heads
/// and the gradient of the final state.
struct GradientArguments {
  const float *sum = nullptr, *normalizer = nullptr;  // partials, [items, partials, ...]
  int partials = 1, slices = 0, features = 0;         // partials of all query heads of an item
  std::int64_t items = 0;
  StateView initial, state, grad_state, grad_initial;
  std::uint16_t *high = nullptr, *low = nullptr;  // [items, slices] Tile<d>: dS, and what it lost
  float* column = nullptr;                        // [items, 64 slices] -c
  float* normalizer_sum = nullptr;                // the same of dz
};

cudaError_t merge_gradients(const GradientArguments& arguments, int dim, cudaStream_t stream);

}  // namespace performer::kernels::cuda::hopper
