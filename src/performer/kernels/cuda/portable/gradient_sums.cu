#include "performer/kernels/cuda/portable/feature_sums.cuh"
#include "performer/kernels/cuda/portable/gradients.h"

namespace performer::kernels::cuda::portable {

cudaError_t launch_gradient_sums(const FavorProblem& problem, const BackwardInputs& in,
                                 const float* along, int splits, Partials partials,
                                 cudaStream_t stream) {
  const QuerySums queries{in.grad_out, in.row_sum, in.row_log2_scale, in.state.log2_scale, along};
  return launch_feature_sums<true>(make_problem(problem), queries, splits, partials, stream);
}

}  // namespace performer::kernels::cuda::portable
