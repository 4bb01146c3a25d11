#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/hopper/arguments.h"

namespace performer::kernels::cuda::hopper {

/// W and biases of one side of a call, [heads, features / (1 + mirrored), dim] and [heads,
/// features] in float32, into the tiles of a Projection.
struct PackArguments {
  Parameter weights, bias;
  bool half = false;      // tokens are float16
  bool mirrored = false;  // the second half of the features is that of -W
  float log2_factor = 1;  // log2(e) sqrt(scale)
  float plain_factor = 1;
  int features = 0, slices = 0;
  std::uint16_t *high = nullptr, *low = nullptr, *plain = nullptr;  // plain: null, not wanted
  float* column = nullptr;                                          // Projection::bias
  float* norm = nullptr;                                            // null: not wanted
  int heads = 1;  // of the result: the larger of the two parameters'
};

cudaError_t pack_projection(const PackArguments& arguments, int dim, cudaStream_t stream);

}  // namespace performer::kernels::cuda::hopper
