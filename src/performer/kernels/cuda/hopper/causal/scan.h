#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/hopper/arguments.h"

// Causal FAVOR+ as scans over chunks of 64 tokens. One side is carried: its features times its
// values are summed into a state. The other side reads: each of its tokens meets the state of the
// chunks before and, one by one, the carried tokens of its own chunk.
//   out  keys are carried, queries read           dq  the same
//   dv   queries are carried, keys read, from the last chunk to the first (reverse)    dk  the same
namespace performer::kernels::cuda::hopper {

/// Exponents, in log2 units: of a carried token l + term - c, of a reading one l + term + c, where
/// c is the scale of the feature, an integer from earlier chunks alone.
struct ScanArguments {
  Tokens carried, reading;
  Projection carried_side, reading_side;
  bool reverse = false;
  bool alone = false;  // nobody reads: only the sums of each segment are wanted
  int slices = 0, features = 0;
  std::int64_t sequences = 0;
  int heads = 1, state_heads = 1;  // of the items; state_heads divides heads
  int segments = 1;                // of a sequence, a block each
  // Packed: where sequence n begins, and the sequences from the longest to the shortest.
  const std::int64_t* offsets = nullptr;
  const std::int32_t* order = nullptr;

  // States [sequences, state_heads, segments or 1, features, ...]. Reverse: those of gradients; the
  // scale of the initial one is minus that of the forward pass's final state.
  StateView initial, last;
  bool initial_of_segments = false, last_of_segments = false;
  /// Reverse: `last` is the gradient of a state with this log2_scale. [sequences, state_heads, ..]
  const std::int32_t* last_scale = nullptr;

  Target to;  // out, dv, dq or dk
  CUtensorMap to_map;
  bool to_mapped = false;
  float* row_sum = nullptr;
  std::int32_t* row_log2 = nullptr;
  float* along = nullptr;  // dq: [batch, heads, length], grad_out . out, corrected
  float norm = 0;          // dk: scale where there is a norm term
};

/// out or dv; with arguments.alone the sums of segments.
cudaError_t scan_apply(const ScanArguments& arguments, int dim, cudaStream_t stream);
/// dq or dk.
cudaError_t scan_pull_back(const ScanArguments& arguments, int dim, cudaStream_t stream);

/// 64-feature slices, rounded up to what the scans are built for; 0: too many.
int scan_slices(int dim, std::int64_t features);

}  // namespace performer::kernels::cuda::hopper
