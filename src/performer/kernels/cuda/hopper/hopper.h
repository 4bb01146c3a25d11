#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "performer/kernels/cuda/common/run.h"
#include "performer/kernels/cuda/kernels.h"

// The path of compute capability 9.0: wgmma and TMA. Functions as in kernels.h.
namespace performer::kernels::cuda::hopper {

bool serves_forward(const FavorProblem& problem, const Device& device);
bool serves_backward(const FavorProblem& problem, const Device& device);

std::size_t forward_workspace(const FavorProblem& problem, const Device& device);
std::size_t backward_workspace(const FavorProblem& problem, const Device& device);

cudaError_t forward(const FavorProblem& problem, const ForwardOutputs& outputs, const Run& run);
cudaError_t backward(const FavorProblem& problem, const BackwardInputs& inputs,
                     const BackwardOutputs& outputs, const Run& run);

}  // namespace performer::kernels::cuda::hopper
