#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/kernels.h"
#include "performer/kernels/params.h"

namespace performer::kernels::cuda::portable {

/// Every query against a state: out and the rows' sums and scales.
cudaError_t launch_attend(const FavorProblem& problem, const StateView& state,
                          const ForwardOutputs& outputs, const Device& device, cudaStream_t stream);

/// along [B, H, Lq] = grad_out . out of every query row, out formed anew in float32: where it was
/// rounded to 16 bits, differences of the gradient that must be 0 would not be.
cudaError_t launch_exact_along(const FavorProblem& problem, const StateView& state,
                               const TokenView& grad_out, float* along, const Device& device,
                               cudaStream_t stream);

/// The same from the out of the forward pass.
cudaError_t launch_along(const FavorProblem& problem, const TokenView& out,
                         const TokenView& grad_out, float* along, cudaStream_t stream);

}  // namespace performer::kernels::cuda::portable
