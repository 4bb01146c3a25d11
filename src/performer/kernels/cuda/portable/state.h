#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "performer/kernels/cuda/kernels.h"
#include "performer/kernels/params.h"

namespace performer::kernels::cuda::portable {

/// States (S, z, c) of the splits of every (sequence, state head), index n * state_heads + head:
/// [index][split][M'][Dv], [index][split][M'], [index][split][M']. Scales are kEmptyLog2Scale
/// (-2^30) where a split has no key. With one split this is the layout of a StateView.
struct Partials {
  float* kv = nullptr;
  float* normalizer = nullptr;
  std::int32_t* log2_scale = nullptr;
};

/// The states of the keys of every split alone (no initial state). Splits: tokens.cuh, split_begin,
/// of the sequence's own length. Every element of `partials` below M' and Dv is written.
cudaError_t launch_key_states(const FavorProblem& problem, const Device& device, int splits,
                              Partials partials, cudaStream_t stream);

/// result = initial (where its pointers are not null) and then the splits in their order, by the
/// one merge of states. `result` may be `partials` itself where there is one split.
cudaError_t launch_merge_states(const FavorProblem& problem, const StateView& initial, int splits,
                                Partials partials, const StateView& result, cudaStream_t stream);

}  // namespace performer::kernels::cuda::portable
