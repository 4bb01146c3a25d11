#include "performer/kernels/cuda/hopper/merge.h"

#include <cuda_fp16.h>

#include <cfloat>

#include "performer/kernels/cuda/common/dispatch.h"
#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/hopper/tile.cuh"

namespace performer::kernels::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 8;  // of S in one block of merge_kernel
constexpr int kPasses = 2;   // over its features, 512 at most

struct Chunk {
  float x[8] = {};
};

__device__ inline Chunk load_chunk(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ inline uint4 pack_chunk(const Chunk& c) {
  return {pack_bf16(c.x[0], c.x[1]), pack_bf16(c.x[2], c.x[3]), pack_bf16(c.x[4], c.x[5]),
          pack_bf16(c.x[6], c.x[7])};
}

/// The power of two that brings `largest` under 2^14; 1 where it is 0 or not finite.
__device__ inline float column_factor(float largest) {
  if (!(largest > 0 && largest < INFINITY)) return 1;
  return exp2f(fminf(fmaxf(ilogbf(largest) - 13.0F, -100.0F), 100.0F));
}

// One block per (item, 8 columns); a thread has a feature at a time.
template <int kDim>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ MergeArguments a) {
  __shared__ float tops[kThreads / 32][kColumns];
  constexpr int kGroups = kDim / kColumns;
  const int group = static_cast<int>(blockIdx.x % kGroups);
  const std::int64_t item = blockIdx.x / kGroups;
  const int wide = a.slices * kRows;
  const int thread = static_cast<int>(threadIdx.x);
  const bool continues = a.initial.normalizer != nullptr;
  const std::int64_t first = item * a.partials * wide;
  float top[kColumns] = {};
  float means[kPasses][kColumns];  // S / z
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int r = pass * kThreads + thread;
#pragma unroll
    for (float& x : means[pass]) x = 0;
    if (r >= wide) continue;
    const bool inside = r < a.features;
    const std::int64_t at = item * a.features + r;
    float c = kEmptyScale;
    for (int p = 0; p < a.partials; ++p) {
      c = fmaxf(c, a.scale[first + static_cast<std::int64_t>(p) * wide + r]);
    }
    const bool adds = continues && inside;
    if (adds) c = fmaxf(c, static_cast<float>(a.initial.log2_scale[at]));
    float z = 0, s[kColumns] = {};
    const auto add = [&](float scale, float normalizer, const float* from) {
      const float factor = exp2_fast(scale - c);
      z = fmaf(normalizer, factor, z);
      const Chunk sum = load_chunk(from + group * kColumns);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) s[i] = fmaf(sum.x[i], factor, s[i]);
    };
#pragma unroll 2
    for (int p = 0; p < a.partials; ++p) {
      const std::int64_t from = first + static_cast<std::int64_t>(p) * wide + r;
      add(a.scale[from], a.normalizer[from], a.sum + from * kDim);
    }
    if (adds) {
      add(static_cast<float>(a.initial.log2_scale[at]), a.initial.normalizer[at],
          a.initial.kv + at * kDim);
    }
    if (group == 0) {
      // Keys whose features left the range are told from no keys.
      const float lost = inside && c > kReachedScale ? -FLT_MAX : -INFINITY;
      a.column[item * wide + r] = inside && z != 0 ? c + __log2f(z) : lost;
    }
    if (!inside) continue;
    if (group == 0) a.state.log2_scale[at] = static_cast<std::int32_t>(c);
    if (a.sum != a.state.kv) {  // the one partial is not the state itself
      if (group == 0) a.state.normalizer[at] = z;
      auto* to = reinterpret_cast<float4*>(a.state.kv + at * kDim + group * kColumns);
      to[0] = float4{s[0], s[1], s[2], s[3]}, to[1] = float4{s[4], s[5], s[6], s[7]};
    }
    const float inverse = z != 0 ? 1 / z : 0;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      means[pass][i] = z != 0 ? s[i] * inverse : 0;
      top[i] = fmaxf(top[i], fabsf(means[pass][i]));
    }
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    for (int step = 16; step > 0; step /= 2) {
      top[i] = fmaxf(top[i], __shfl_xor_sync(~0U, top[i], step));
    }
    if (thread % 32 == 0) tops[thread / 32][i] = top[i];
  }
  __syncthreads();
  float inverse[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    float largest = 0;
    for (int w = 0; w < kThreads / 32; ++w) largest = fmaxf(largest, tops[w][i]);
    const float factor = column_factor(largest);
    inverse[i] = 1 / factor;
    if (thread == 0) a.factor[item * kDim + group * kColumns + i] = factor;
  }
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int r = pass * kThreads + thread;
    if (r >= wide) continue;
    auto* tile = reinterpret_cast<char*>(a.tiles) +
                 (item * a.slices + r / kRows) * static_cast<std::int64_t>(SumTile<kDim>::kBytes);
    const auto put = [&](int column, float x) {
      *reinterpret_cast<__half*>(tile + SumTile<kDim>::offset(column, r % kRows)) =
          __float2half_rn(x);
    };
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      put(group * kColumns + i, means[pass][i] * inverse[i]);
      if (group == 0) put(kDim + i, i == 0 ? 1 : 0);  // sums the weights
    }
  }
}

// One block per (item, slice of 64 features).
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    state_tile_kernel(const __grid_constant__ StateTileArguments a) {
  const int slice = static_cast<int>(blockIdx.x % a.slices);
  const std::int64_t item = blockIdx.x / a.slices;
  const int thread = static_cast<int>(threadIdx.x);
  auto* tile =
      reinterpret_cast<char*>(a.tiles) + blockIdx.x * static_cast<std::int64_t>(Tile<kDim>::kBytes);
#pragma unroll 2
  for (int i = thread; i < kRows * Tile<kDim>::kChunks; i += kThreads) {
    const int row = i / Tile<kDim>::kChunks, chunk = i % Tile<kDim>::kChunks;
    const int feature = slice * kRows + row;
    const bool inside = feature < a.features;
    const std::int64_t at = item * a.features + feature;
    const float z = inside ? a.state.normalizer[at] : 0;
    const float inverse = z != 0 ? 1 / z : 0;
    Chunk s;
    if (inside) s = load_chunk(a.state.kv + at * kDim + 8 * chunk);
#pragma unroll
    for (float& x : s.x) x = z != 0 ? x * inverse : 0;
    *reinterpret_cast<uint4*>(tile + Tile<kDim>::offset(row, chunk)) = pack_chunk(s);
    if (chunk == 0) {
      a.column[static_cast<std::int64_t>(blockIdx.x) * kRows + row] =
          z != 0 ? static_cast<float>(a.state.log2_scale[at]) + __log2f(z) : -INFINITY;
    }
  }
}

/// x 2^n in two steps, each with a finite factor: 0 stays 0.
__device__ inline float scale_pow2(float x, float n) {
  const float bounded = fmaxf(-252.0F, fminf(252.0F, n));
  const float half = truncf(bounded * 0.5F);
  return x * exp2f(half) * exp2f(bounded - half);
}

/// The gradient of the initial state's tensors from that of the final state's: times
/// 2^(initial - final). A feature no key ever reached hands what came in through.
__device__ inline float initial_gradient(const GradientArguments& a, std::int64_t at, float own,
                                         const float* passed, std::int64_t passed_at) {
  const auto initial = static_cast<float>(a.initial.log2_scale[at]);
  const auto final = static_cast<float>(a.state.log2_scale[at]);
  if (initial > kReachedScale) return scale_pow2(own, initial - final);
  if (final > kReachedScale || passed == nullptr) return 0;
  return passed[passed_at];
}

// One block per (item, slice of 64 features, quarter of its rows).
constexpr int kQuarters = 4;
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const __grid_constant__ GradientArguments a) {
  const std::int64_t tile = blockIdx.x / kQuarters;
  const int quarter = static_cast<int>(blockIdx.x % kQuarters);
  const int slice = static_cast<int>(tile % a.slices);
  const std::int64_t item = tile / a.slices;
  const std::int64_t wide = static_cast<std::int64_t>(a.slices) * kRows;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = item * a.partials * wide + slice * kRows;

  constexpr int kQuarterRows = kRows / kQuarters;
  if (thread < kQuarterRows) {
    const int row = quarter * kQuarterRows + thread, feature = slice * kRows + row;
    const bool inside = feature < a.features;
    const std::int64_t at = item * a.features + feature, to = item * wide + feature;
    float dz = 0, c = 0;
    for (int p = 0; p < a.partials; ++p) dz += a.normalizer[first + p * wide + row];
    if (inside) {
      c = static_cast<float>(a.state.log2_scale[at]);
      if (a.grad_state.normalizer != nullptr) dz += a.grad_state.normalizer[at];
      if (a.grad_initial.normalizer != nullptr) {
        a.grad_initial.normalizer[at] = initial_gradient(a, at, dz, a.grad_state.normalizer, at);
      }
    }
    a.column[to] = -c;
    a.normalizer_sum[to] = dz;
  }
  for (int i = thread; i < kQuarterRows * Tile<kDim>::kChunks; i += kThreads) {
    const int row = quarter * kQuarterRows + i / Tile<kDim>::kChunks;
    const int chunk = i % Tile<kDim>::kChunks;
    const int feature = slice * kRows + row;
    Chunk ds;
    const auto add = [&](const float* from) {
      const Chunk part = load_chunk(from + 8 * chunk);
#pragma unroll
      for (int e = 0; e < 8; ++e) ds.x[e] += part.x[e];
    };
#pragma unroll 4
    for (int p = 0; p < a.partials; ++p) add(a.sum + (first + p * wide + row) * kDim);
    if (feature < a.features) {
      const std::int64_t at = item * a.features + feature;
      if (a.grad_state.kv != nullptr) add(a.grad_state.kv + at * kDim);
      if (a.grad_initial.kv != nullptr) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const std::int64_t to = at * kDim + 8 * chunk + e;
          a.grad_initial.kv[to] = initial_gradient(a, at, ds.x[e], a.grad_state.kv, to);
        }
      }
    }
    const std::int64_t to = tile * Tile<kDim>::kBytes + Tile<kDim>::offset(row, chunk);
    const uint4 high = pack_chunk(ds);
    *reinterpret_cast<uint4*>(reinterpret_cast<char*>(a.high) + to) = high;
    const std::uint32_t pairs[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      ds.x[e] -= __uint_as_float(e % 2 == 0 ? pairs[e / 2] << 16 : pairs[e / 2] & 0xFFFF0000U);
    }
    *reinterpret_cast<uint4*>(reinterpret_cast<char*>(a.low) + to) = pack_chunk(ds);
  }
}

}  // namespace

cudaError_t merge_states(const MergeArguments& a, int dim, cudaStream_t stream) {
  return with_value<32, 64, 128>(dim, [&](auto width) {
    return launch(merge_kernel<width()>, {a.items * (dim / kColumns), kThreads}, stream, a);
  });
}

cudaError_t pack_state(const StateTileArguments& a, int dim, cudaStream_t stream) {
  return with_value<32, 64, 128>(dim, [&](auto width) {
    return launch(state_tile_kernel<width()>, {a.items * a.slices, kThreads}, stream, a);
  });
}

cudaError_t merge_gradients(const GradientArguments& a, int dim, cudaStream_t stream) {
  return with_value<32, 64, 128>(dim, [&](auto width) {
    return launch(gradient_kernel<width()>, {a.items * a.slices * kQuarters, kThreads}, stream, a);
  });
}

}  // namespace performer::kernels::cuda::hopper
