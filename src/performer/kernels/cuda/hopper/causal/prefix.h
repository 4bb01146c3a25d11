#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/hopper/arguments.h"

namespace performer::kernels::cuda::hopper {

/// The sums of each segment of a scan become, in place, those of everything before the segment.
struct PrefixArguments {
  StateView sums;        // [states, segments, features, ..]
  StateView initial;     // [states, features, ..]; null: nothing before
  bool negated = false;  // the initial state's scale is minus its log2_scale
  bool reverse = false;  // the scan begins with the last segment
  std::int64_t states = 0;
  int segments = 1, features = 0;
};
cudaError_t prefix_states(const PrefixArguments& arguments, int dim, cudaStream_t stream);

/// Sequences from the longest to the shortest, so that blocks that begin last are short.
inline constexpr int kMostOrdered = 4096;
cudaError_t order_sequences(const std::int64_t* offsets, std::int32_t* order, int sequences,
                            cudaStream_t stream);

}  // namespace performer::kernels::cuda::hopper
