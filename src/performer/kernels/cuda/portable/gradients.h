#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/portable/state.h"
#include "performer/kernels/params.h"

// The passes of the bidirectional backward pass. `along` [B, H, Lq] is grad_out . out of each row;
// `sums` is (dS, dz) in the scales of the final state.
namespace performer::kernels::cuda::portable {

/// (dS, dz) of the queries of every split of every (sequence, state head); partials have no scales.
/// The tiles of a sequence's queries, one query head after the other, are cut as evenly as can be.
cudaError_t launch_gradient_sums(const FavorProblem& problem, const BackwardInputs& in,
                                 const float* along, int splits, Partials partials,
                                 cudaStream_t stream);

cudaError_t launch_query_gradient(const FavorProblem& problem, const BackwardInputs& in,
                                  const float* along, const TokenView& dq, cudaStream_t stream);

cudaError_t launch_key_gradient(const FavorProblem& problem, const StateView& state,
                                const StateView& sums, const TokenView& dk, const TokenView& dv,
                                cudaStream_t stream);

/// The gradient for the initial state's tensors: `sums` in the scales of the initial state.
/// A feature no key ever reached hands that of the final state through.
cudaError_t launch_initial_gradient(const FavorProblem& problem, const BackwardInputs& in,
                                    const StateView& sums, const StateView& gradient,
                                    cudaStream_t stream);

}  // namespace performer::kernels::cuda::portable
