#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/maps.cuh"
#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/portable/gradients.h"
#include "performer/kernels/cuda/portable/tile.cuh"

namespace performer::kernels::cuda::portable {
namespace {

// A warp has one feature of one state. (dS, dz) are for true values times 2^c of the final state:
// those for the initial tensors are theirs times 2^(c initial - c final).
__global__ void __launch_bounds__(kThreads)
    initial_gradient(std::int64_t rows, std::int64_t value_dim, const std::int32_t* initial_scale,
                     const std::int32_t* final_scale, StateView passed, StateView sums,
                     StateView gradient) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_id();
  if (row >= rows) return;
  const auto initial = static_cast<float>(initial_scale[row]);
  const auto final = static_cast<float>(final_scale[row]);
  const bool untouched = initial <= kReachedScale;
  const bool through = untouched && final <= kReachedScale;
  const auto pass = [&](const float* from, const float* own, std::int64_t at) {
    if (through) return from == nullptr ? 0.0F : from[at];
    return untouched ? 0.0F : scale_pow2(own[at], initial - final);
  };
  if (lane_id() == 0) gradient.normalizer[row] = pass(passed.normalizer, sums.normalizer, row);
  for (std::int64_t column = lane_id(); column < value_dim; column += 32) {
    const std::int64_t at = row * value_dim + column;
    gradient.kv[at] = pass(passed.kv, sums.kv, at);
  }
}

}  // namespace

cudaError_t launch_initial_gradient(const FavorProblem& problem, const BackwardInputs& in,
                                    const StateView& sums, const StateView& gradient,
                                    cudaStream_t stream) {
  const std::int64_t rows = problem.sequences * problem.state_heads * problem.features;
  return launch(initial_gradient, {divide_up(rows, kWarps), kThreads}, stream, rows,
                problem.value_dim, static_cast<const std::int32_t*>(problem.initial.log2_scale),
                static_cast<const std::int32_t*>(in.state.log2_scale), in.grad_state, sums,
                gradient);
}

}  // namespace performer::kernels::cuda::portable
