#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "performer/kernels/cuda/common/run.h"
#include "performer/kernels/cuda/kernels.h"

// The path for any GPU from sm_80 on: float32 multiply-adds whatever the dtype, at most 99 KB of
// shared memory a block. Functions as in kernels.h.
namespace performer::kernels::cuda::portable {

/// Exponential maps and relu (its W may be absent), d and dv up to 256.
bool serves(const FavorProblem& problem);

std::size_t forward_workspace(const FavorProblem& problem, const Device& device);
std::size_t backward_workspace(const FavorProblem& problem, const Device& device);

cudaError_t forward(const FavorProblem& problem, const ForwardOutputs& outputs, const Run& run);
cudaError_t backward(const FavorProblem& problem, const BackwardInputs& inputs,
                     const BackwardOutputs& outputs, const Run& run);

}  // namespace performer::kernels::cuda::portable
