#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/kernels.h"
#include "performer/kernels/cuda/portable/tokens.cuh"

// How a causal call is cut into work. An item is a (sequence, state head); its chunks of 64 tokens
// are walked in order by one block, or in segments by several blocks at once, each from the state
// before its segment.
namespace performer::kernels::cuda::portable {

/// (S, z, c) in global memory, padded to whole tiles: [mp][dvp], [mp], [mp]. Scales are integers;
/// S and z are 0 where a scale is empty. A gradient (dS, dz, e) lies in one too.
struct CausalState {
  float* sum;
  float* normalizer;
  float* scale;
};

/// What a block keeps of the chunk at hand, feature-major: [mp][64], [mp][64], [mp].
struct CausalScratch {
  float* keys;
  float* queries;
  float* reference;  // scales the chunk's features are relative to
};

struct CausalCall {
  Problem problem;
  std::int64_t items = 0;
  int segments = 1;                                  // of every item
  int blocks = 1;                                    // that walk; each has one scratch
  int group = 1;                                     // query heads of a state head
  int slices = 1, value_blocks = 1, dim_blocks = 1;  // tiles of 64: mp / 64, dvp / 64
  float* states = nullptr;                           // state_slots() of slot_floats()
  float* scratch = nullptr;                          // `blocks` of scratch_floats()
  float* along = nullptr;                            // [B, H, L] of rows, or null: in keys_along
  TokenView keys_along;                              // the gradient of k, not yet written

  __host__ __device__ std::int64_t works() const { return items * segments; }
  __host__ __device__ std::int64_t state_slots() const { return segments > 1 ? works() : blocks; }
  __host__ __device__ int features_padded() const { return slices * kTile; }
  __host__ __device__ int values_padded() const { return value_blocks * kTile; }
  __host__ __device__ std::int64_t slot_floats() const {
    return static_cast<std::int64_t>(features_padded()) * (values_padded() + 2);
  }
  __host__ __device__ std::int64_t scratch_floats() const {
    return static_cast<std::int64_t>(features_padded()) * (2 * kTile + 1);
  }

  __device__ CausalState state(std::int64_t slot) const {
    float* sum = states + slot * slot_floats();
    float* normalizer = sum + static_cast<std::int64_t>(features_padded()) * values_padded();
    return {sum, normalizer, normalizer + features_padded()};
  }
  __device__ CausalScratch block_scratch() const {
    float* keys = scratch + blockIdx.x * scratch_floats();
    float* queries = keys + static_cast<std::int64_t>(features_padded()) * kTile;
    return {keys, queries, queries + static_cast<std::int64_t>(features_padded()) * kTile};
  }
};

/// Tokens [begin, end) of a sequence: segment `index` of an item.
struct CausalSegment {
  std::int64_t item, head;  // head: of the states
  std::int64_t begin, end;
  Span span;
  int index;

  __device__ CausalSegment(const CausalCall& call, std::int64_t work)
      : item(work / call.segments), index(static_cast<int>(work % call.segments)) {
    const std::int64_t heads = call.problem.state_heads;
    head = item % heads;
    span = key_span(call.problem, item / heads);
    begin = split_begin(span.length, index, call.segments);
    end = split_begin(span.length, index + 1, call.segments);
  }
};

/// Whether g . out of the rows waits in the gradient of their keys: where a row of it has room, and
/// is written after its only query row was read.
inline bool along_waits_in_keys(const FavorProblem& p) {
  return p.heads == p.state_heads && p.dim * (p.dtype == Dtype::kFloat ? 4 : 2) >= 4;
}

/// The plan of a call; its memory is yet to be given.
CausalCall make_causal_call(const FavorProblem& problem, const Device& device);

/// Segments' sums of keys, or of the rows' gradients, and then the states before (after) every
/// segment in its slot. Nothing to do for one segment.
cudaError_t launch_states_before(const CausalCall& call, cudaStream_t stream);
cudaError_t launch_gradients_after(const CausalCall& call, const BackwardInputs& in,
                                   cudaStream_t stream);

cudaError_t launch_causal_outputs(const CausalCall& call, const ForwardOutputs& out,
                                  cudaStream_t stream);
cudaError_t launch_query_gradients(const CausalCall& call, const BackwardInputs& in,
                                   const BackwardOutputs& out, cudaStream_t stream);
cudaError_t launch_key_gradients(const CausalCall& call, const BackwardInputs& in,
                                 const BackwardOutputs& out, cudaStream_t stream);

}  // namespace performer::kernels::cuda::portable
