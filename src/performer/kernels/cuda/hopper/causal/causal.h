#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "performer/kernels/cuda/common/run.h"
#include "performer/kernels/cuda/kernels.h"

// Causal FAVOR+ of the Hopper path: the scans of scan.h, in the order of a call.
namespace performer::kernels::cuda::hopper {

/// Whether the scans have room for the call, dtype and widths being right.
bool causal_forward_fits(const FavorProblem& problem);
bool causal_backward_fits(const FavorProblem& problem);

std::size_t causal_forward_workspace(const FavorProblem& problem, const Device& device);
std::size_t causal_backward_workspace(const FavorProblem& problem, const Device& device);

cudaError_t causal_forward(const FavorProblem& problem, const ForwardOutputs& outputs,
                           const Run& run);
cudaError_t causal_backward(const FavorProblem& problem, const BackwardInputs& inputs,
                            const BackwardOutputs& outputs, const Run& run);

}  // namespace performer::kernels::cuda::hopper
