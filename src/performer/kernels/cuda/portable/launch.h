#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "performer/kernels/cuda/portable/tile.cuh"

namespace performer::kernels::cuda::portable {

/// Launches blocks of kThreads with `bytes` of dynamic shared memory; nothing where there are none.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), std::int64_t blocks, int bytes,
                   cudaStream_t stream, const Arguments&... arguments) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  constexpr int kBytesWithoutAsking = 48 * 1024;
  if (blocks == 0) return cudaSuccess;
  if (blocks > kMostBlocks) return cudaErrorInvalidConfiguration;
  if (bytes > kBytesWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<std::size_t>(bytes), stream>>>(
      arguments...);
  return cudaGetLastError();
}

}  // namespace performer::kernels::cuda::portable
