#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "performer/kernels/cuda/decode/plan.h"
#include "performer/kernels/cuda/kernels.h"

namespace performer::kernels::cuda::decode {

struct Grid {
  std::int64_t blocks;
  int cluster;  // blocks of one
  int bytes;    // dynamic shared memory of a block
};

/// Whether the code of `kernel` that runs on the device can join blocks: it may have been compiled
/// from that for an older one.
inline cudaError_t has_clusters(void (*kernel)(Step), const Device& device, bool& clusters) {
  clusters = false;
  if (device.major < 9) return cudaSuccess;
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  clusters = error == cudaSuccess && attributes.ptxVersion >= 90;
  return error;
}

/// Nothing where there are no blocks.
inline cudaError_t launch(void (*kernel)(Step), const Grid& grid, cudaStream_t stream,
                          const Step& step) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  constexpr int kBytesWithoutAsking = 48 * 1024;
  if (grid.blocks == 0) return cudaSuccess;
  if (grid.blocks > kMostBlocks) return cudaErrorInvalidConfiguration;
  if (grid.bytes > kBytesWithoutAsking) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.bytes);
    if (error != cudaSuccess) return error;
    // Shared memory for as many blocks as fit, not for one alone.
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(grid.bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = grid.cluster > 1 ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, step);
  return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace performer::kernels::cuda::decode
