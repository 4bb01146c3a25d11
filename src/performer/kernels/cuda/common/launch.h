#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "performer/kernels/cuda/kernels.h"

namespace performer::kernels::cuda {

/// Shared memory that a block may have: on every GPU from sm_80 on, and on sm_90.
inline constexpr int kSharedAnywhere = 99 * 1024;
inline constexpr int kSharedHopper = 227 * 1024;

struct Grid {
  std::int64_t blocks = 0;
  int threads = 0;
  int bytes = 0;         // dynamic shared memory of a block
  int cluster = 1;       // blocks of one
  bool crowded = false;  // as many blocks as fit share a multiprocessor's shared memory
};

/// Nothing where there are no blocks.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                   const Arguments&... arguments) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  constexpr int kBytesWithoutAsking = 48 * 1024;
  if (grid.blocks == 0) return cudaSuccess;
  if (grid.blocks > kMostBlocks) return cudaErrorInvalidConfiguration;
  cudaError_t error = cudaSuccess;
  if (grid.bytes > kBytesWithoutAsking) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.bytes);
    if (error == cudaSuccess && grid.crowded) {
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
    }
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(grid.bytes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = grid.cluster > 1 ? 1 : 0;
  error = cudaLaunchKernelEx(&config, kernel, arguments...);
  const cudaError_t last = cudaGetLastError();
  return error != cudaSuccess ? error : last;
}

/// Whether the code of `kernel` that runs on the device can join blocks: it may have been compiled
/// from that for an older one.
template <class... Parameters>
cudaError_t has_clusters(void (*kernel)(Parameters...), const Device& device, bool& clusters) {
  clusters = false;
  if (device.major < 9) return cudaSuccess;
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  clusters = error == cudaSuccess && attributes.ptxVersion >= 90;
  return error;
}

}  // namespace performer::kernels::cuda
