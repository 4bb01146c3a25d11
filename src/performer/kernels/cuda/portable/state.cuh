#pragma once

#include "performer/kernels/cuda/common/maps.cuh"

// The one merge of states, feature by feature.
namespace performer::kernels::cuda::portable {

/// Factors 2^(c1 - c), 2^(c2 - c) of two states whose features merge, c = max(c1, c2):
/// S = first S1 + second S2, and so z. A state without keys has factor 1 beside another like it
/// and 0 beside any other; its S and z are 0.
struct MergeFactors {
  float scale, first, second;
};
__device__ __forceinline__ MergeFactors merge_factors(float c1, float c2) {
  const float c = fmaxf(c1, c2);
  return {c, exp2_integer(c1 - c), exp2_integer(c2 - c)};
}

}  // namespace performer::kernels::cuda::portable
