#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/maps.cuh"
#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/portable/state.cuh"
#include "performer/kernels/cuda/portable/state.h"
#include "performer/kernels/cuda/portable/tile.cuh"

namespace performer::kernels::cuda::portable {
namespace {

struct Sizes {
  std::int64_t rows;  // features of all states
  std::int64_t features, value_dim;
  int splits;
};

// A warp has one feature of one state: kv[value_dim], z, c. Scales may be absent: plain sums.
// Every lane reads z and c before one writes them, since result and parts may be the same.
__global__ void __launch_bounds__(kThreads)
    merge_states(const __grid_constant__ Sizes s, StateView initial, Partials parts,
                 StateView result) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_id();
  if (row >= s.rows) return;
  const std::int64_t index = row / s.features, r = row % s.features;
  const auto part_row = [&](int split) { return (index * s.splits + split) * s.features + r; };
  const bool scaled = parts.log2_scale != nullptr;
  const auto scale_of = [&](const std::int32_t* scales, std::int64_t at) {
    return static_cast<float>(scales[at]);
  };

  float top = kEmptyScale;
  if (scaled) {
    if (initial.normalizer != nullptr) top = scale_of(initial.log2_scale, row);
    for (int split = lane_id(); split < s.splits; split += 32) {
      top = fmaxf(top, scale_of(parts.log2_scale, part_row(split)));
    }
    for (int mask = 1; mask < 32; mask *= 2) {
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, mask));
    }
  }
  const auto factor = [&](const std::int32_t* scales, std::int64_t at) {
    return scaled ? exp2_integer(scale_of(scales, at) - top) : 1.0F;
  };
  const auto sum = [&](const float* first, const float* others, std::int64_t width,
                       std::int64_t column) {
    float total = 0;
    if (first != nullptr) total = first[row * width + column] * factor(initial.log2_scale, row);
    for (int split = 0; split < s.splits; ++split) {
      const std::int64_t at = part_row(split);
      total = fmaf(others[at * width + column], factor(parts.log2_scale, at), total);
    }
    return total;
  };

  const float z = sum(initial.normalizer, parts.normalizer, 1, 0);
  for (std::int64_t column = 0; column < s.value_dim; column += 32) {
    const std::int64_t own = column + lane_id();
    if (own < s.value_dim) {
      result.kv[row * s.value_dim + own] = sum(initial.kv, parts.kv, s.value_dim, own);
    }
  }
  __syncwarp();
  if (lane_id() != 0) return;
  result.normalizer[row] = z;
  if (scaled) result.log2_scale[row] = static_cast<std::int32_t>(top);
}

}  // namespace

cudaError_t launch_merge_states(const FavorProblem& problem, const StateView& initial, int splits,
                                Partials partials, const StateView& result, cudaStream_t stream) {
  const Sizes s{problem.sequences * problem.state_heads * problem.features, problem.features,
                problem.value_dim, splits};
  const bool in_place = splits == 1 && partials.kv == result.kv;
  if (in_place && initial.normalizer == nullptr) return cudaSuccess;
  return launch(merge_states, {divide_up(s.rows, kWarps), kThreads}, stream, s, initial, partials,
                result);
}

}  // namespace performer::kernels::cuda::portable
