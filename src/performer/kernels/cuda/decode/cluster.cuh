#pragma once

#include <cstdint>

// The blocks of a cluster: where shared memory of one is read by another. From sm_90 on; code for
// other machines is launched with clusters of one block alone.
namespace performer::kernels::cuda::decode {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// What every thread of the cluster wrote before, every thread sees afterwards.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

/// *shared of block `rank` of the cluster.
__device__ __forceinline__ float load_peer(const float* shared, int rank) {
  const auto own = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  std::uint32_t theirs;
  float x;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(theirs) : "memory");
  return x;
}

#else

__device__ __forceinline__ void cluster_barrier() { __syncthreads(); }
__device__ __forceinline__ float load_peer(const float* shared, int /*rank*/) { return *shared; }

#endif

}  // namespace performer::kernels::cuda::decode
