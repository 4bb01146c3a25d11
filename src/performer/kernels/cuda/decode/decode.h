#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/kernels.h"

// One token after a state, in one launch: the step of a stream. Every sequence and state head takes
// it feature by feature, each with its own scale c, an exact power of two that only a key raises:
//   S <- S 2^(c - c') + phi_k v^T     z <- z 2^(c - c') + phi_k     out = phi_q S / phi_q z
// Any GPU from sm_80 on, float32 arithmetic whatever the dtype. The bytes of the state, read and
// written once, are the limit: 2 x 4 M' (Dv + 2) per head.
namespace performer::kernels::cuda::decode {

/// Causal calls of one token per sequence, dense, with an initial state; exponential maps and relu
/// (its W may be absent), d and dv up to 256.
bool serves(const FavorProblem& problem, const Device& device);

/// The state after the token goes to `state`, which may be problem.initial: in place. No workspace.
cudaError_t step(const FavorProblem& problem, const TokenView& out, const StateView& state,
                 const Device& device, cudaStream_t stream);

}  // namespace performer::kernels::cuda::decode
