#include "performer/kernels/cuda/portable/state.h"

#include "performer/kernels/cuda/portable/feature_sums.cuh"

namespace performer::kernels::cuda::portable {

cudaError_t launch_key_states(const FavorProblem& problem, const Device& /*device*/, int splits,
                              Partials partials, cudaStream_t stream) {
  return launch_feature_sums<false>(make_problem(problem), QuerySums{}, splits, partials, stream);
}

}  // namespace performer::kernels::cuda::portable
