#pragma once

#include <cuda_runtime_api.h>

#include "performer/kernels/cuda/kernels.h"

namespace performer::kernels::cuda {

/// Where and with what memory a call runs.
struct Run {
  const Device& device;
  void* workspace;
  cudaStream_t stream;
};

}  // namespace performer::kernels::cuda
