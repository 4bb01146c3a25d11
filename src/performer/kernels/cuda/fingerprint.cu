#include "performer/kernels/cuda/fingerprint.h"

#include <cooperative_groups.h>

#include <array>
#include <atomic>

#include "performer/kernels/cuda/common/launch.h"

// The hash of a call's parameters. Half a MiB of W is too much for one multiprocessor's share of
// the second-level cache's bandwidth (about 5 us), so that a cluster of blocks reads it and sums
// through distributed shared memory. Without clusters (before sm_90) one block does it all. Sums of
// integers are the same in any order.
namespace performer::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kCluster = 8;  // the largest that every device with clusters takes
constexpr int kSums = 2 * kFingerprintTensors;
constexpr std::int64_t kOneBlockBytes = 32 << 10;  // less is not worth a cluster

__device__ std::uint64_t extend(int word) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(word));
}

__device__ std::uint64_t word_at(const Words& words, std::int64_t i) {
  return words.wide ? static_cast<const std::uint64_t*>(words.data)[i]
                    : extend(static_cast<const int*>(words.data)[i]);
}

// Words first, first + step, ...; 16 bytes at a time where the address allows it.
__device__ std::uint64_t sum_words(const Words& words, std::int64_t first, std::int64_t step) {
  std::uint64_t sum = 0;
  std::int64_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(words.data) % 16 == 0) {
    const std::int64_t per_load = words.wide ? 2 : 4;
    const std::int64_t loads = words.count / per_load;
    const auto* quads = static_cast<const int4*>(words.data);
#pragma unroll 8
    for (std::int64_t i = first; i < loads; i += step) {
      const int4 quad = quads[i];
      if (words.wide) {
        const auto pair = [](int low, int high) {
          return static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32 |
                 static_cast<unsigned>(low);
        };
        sum += pair(quad.x, quad.y) + pair(quad.z, quad.w);
      } else {
        sum += extend(quad.x) + extend(quad.y) + extend(quad.z) + extend(quad.w);
      }
    }
    done = loads * per_load;
  }
  for (std::int64_t i = done + first; i < words.count; i += step) sum += word_at(words, i);
  return sum;
}

__device__ std::uint64_t sum_samples(const Words& words, std::int64_t first, std::int64_t step) {
  std::uint64_t sum = 0;
  const std::int64_t stride = sample_stride(words.count), samples = sample_count(words.count);
  for (std::int64_t i = first; i < samples; i += step) sum += sample(i, word_at(words, i * stride));
  return sum;
}

__device__ std::uint64_t sum_warp(std::uint64_t value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
  return value;
}

// The bit sum and the sample sum of each tensor, over the block: totals[kSums].
__device__ void sum_block(const FingerprintJob& job, std::int64_t first, std::int64_t step,
                          std::uint64_t* totals) {
  __shared__ std::uint64_t warps[kSums][kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int t = 0; t < kFingerprintTensors; ++t) {
    const Words& words = job.tensors[t];
    const bool there = words.data != nullptr;
    const std::uint64_t bits = there ? sum_warp(sum_words(words, first, step)) : 0;
    const std::uint64_t samples = there ? sum_warp(sum_samples(words, first, step)) : 0;
    if (lane == 0) warps[2 * t][warp] = bits, warps[2 * t + 1][warp] = samples;
  }
  __syncthreads();
  if (warp < kSums) {
    const std::uint64_t total = sum_warp(warps[warp][lane]);
    if (lane == 0) totals[warp] = total;
  }
}

__device__ std::int64_t chain(const FingerprintJob& job, const std::uint64_t* totals) {
  std::uint64_t hash = job.seed;
  for (int t = 0; t < kFingerprintTensors; ++t) {
    if (job.tensors[t].data != nullptr) hash = mix(mix(hash, totals[2 * t]), totals[2 * t + 1]);
  }
  return static_cast<std::int64_t>(hash);
}

// The grid is one cluster, or one block.
__global__ void __launch_bounds__(kThreads)
    fingerprint_kernel(const __grid_constant__ FingerprintJob job, std::int64_t* out) {
  __shared__ std::uint64_t totals[kSums];
#if __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  const auto first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  sum_block(job, first, static_cast<std::int64_t>(gridDim.x) * kThreads, totals);
  cluster.sync();
  if (blockIdx.x == 0) {
    if (threadIdx.x < kSums) {
      std::uint64_t sum = 0;
      for (unsigned block = 0; block < gridDim.x; ++block) {
        sum += cluster.map_shared_rank(totals, block)[threadIdx.x];
      }
      __syncwarp((1u << kSums) - 1);
      totals[threadIdx.x] = sum;
      __syncwarp((1u << kSums) - 1);
      if (threadIdx.x == 0) *out = chain(job, totals);
    }
  }
  cluster.sync();  // no block leaves while its sums are read
#else
  if (blockIdx.x != 0) return;
  sum_block(job, threadIdx.x, kThreads, totals);
  __syncthreads();
  if (threadIdx.x == 0) *out = chain(job, totals);
#endif
}

// has_clusters, asked once per device.
cudaError_t find_clusters(const Device& device, bool& clusters) {
  enum : std::uint8_t { kUnknown, kNone, kThere };
  static std::array<std::atomic<std::uint8_t>, 64> known{};
  clusters = false;
  if (device.major < 9 || device.index < 0 || device.index >= static_cast<int>(known.size())) {
    return cudaSuccess;
  }
  auto& own = known[static_cast<std::size_t>(device.index)];
  if (own.load(std::memory_order_relaxed) == kUnknown) {
    const cudaError_t status = has_clusters(fingerprint_kernel, device, clusters);
    if (status != cudaSuccess) return status;
    own.store(clusters ? kThere : kNone, std::memory_order_relaxed);
  }
  clusters = own.load(std::memory_order_relaxed) == kThere;
  return cudaSuccess;
}

}  // namespace

cudaError_t fingerprint(const FingerprintJob& job, std::int64_t* out, const Device& device,
                        cudaStream_t stream) {
  bool clusters = false;
  if (const cudaError_t status = find_clusters(device, clusters); status != cudaSuccess) {
    return status;
  }
  std::int64_t bytes = 0;
  for (const Words& words : job.tensors) bytes += words.count * (words.wide ? 8 : 4);
  const int blocks = clusters && bytes > kOneBlockBytes ? kCluster : 1;
  return launch(fingerprint_kernel, {blocks, kThreads, 0, blocks}, stream, job, out);
}

}  // namespace performer::kernels::cuda
