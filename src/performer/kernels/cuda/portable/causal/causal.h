#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "performer/kernels/cuda/common/run.h"
#include "performer/kernels/cuda/kernels.h"

// Causal FAVOR+ of the portable path.
namespace performer::kernels::cuda::portable {

std::size_t causal_forward_workspace(const FavorProblem& problem, const Device& device);
cudaError_t causal_forward(const FavorProblem& problem, const ForwardOutputs& outputs,
                           const Run& run);

std::size_t causal_backward_workspace(const FavorProblem& problem, const Device& device);
cudaError_t causal_backward(const FavorProblem& problem, const BackwardInputs& inputs,
                            const BackwardOutputs& outputs, const Run& run);

}  // namespace performer::kernels::cuda::portable
