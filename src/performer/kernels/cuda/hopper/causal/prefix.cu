#include "performer/kernels/cuda/hopper/causal/prefix.h"

#include "performer/kernels/cuda/common/dispatch.h"
#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/maps.cuh"
#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/hopper/ptx.cuh"

namespace performer::kernels::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 8;  // segments loaded before they are needed

// A warp per (state, feature).
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    prefix_kernel(const __grid_constant__ PrefixArguments a) {
  constexpr int kOwn = kDim / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t row = blockIdx.x * std::int64_t{kThreads / 32} + threadIdx.x / 32;
  if (row >= a.states * a.features) return;
  const std::int64_t state = row / a.features, feature = row % a.features;
  float s[kOwn] = {}, z = 0, c = kEmptyScale;
  if (a.initial.kv != nullptr) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) s[i] = a.initial.kv[row * kDim + 32 * i + lane];
    z = a.initial.normalizer[row];
    c = static_cast<float>(a.initial.log2_scale[row]);
    if (a.negated) c = -c;
  }
  const auto at = [&](int step) {
    const int segment = a.reverse ? a.segments - 1 - step : step;
    return (state * a.segments + segment) * a.features + feature;
  };
  for (int first = 0; first < a.segments; first += kAhead) {
    float next[kAhead][kOwn], next_z[kAhead], next_c[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t from = at(min(first + k, a.segments - 1));
#pragma unroll
      for (int i = 0; i < kOwn; ++i) next[k][i] = a.sums.kv[from * kDim + 32 * i + lane];
      next_z[k] = a.sums.normalizer[from];
      next_c[k] = static_cast<float>(a.sums.log2_scale[from]);
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (first + k >= a.segments) break;
      const std::int64_t to = at(first + k);
      const float most = fmaxf(c, next_c[k]);
      const float old_factor = exp2_fast(c - most), new_factor = exp2_fast(next_c[k] - most);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        a.sums.kv[to * kDim + 32 * i + lane] = s[i];
        s[i] = s[i] * old_factor + next[k][i] * new_factor;
      }
      if (lane == 0) {
        a.sums.normalizer[to] = z;
        a.sums.log2_scale[to] = static_cast<std::int32_t>(c);
      }
      z = z * old_factor + next_z[k] * new_factor;
      c = most;
    }
  }
}

__global__ void order_kernel(const std::int64_t* offsets, std::int32_t* order, int sequences) {
  const int n = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (n >= sequences) return;
  const std::int64_t length = offsets[n + 1] - offsets[n];
  int rank = 0;
  for (int i = 0; i < sequences; ++i) {
    const std::int64_t other = offsets[i + 1] - offsets[i];
    rank += other > length || (other == length && i < n) ? 1 : 0;
  }
  order[rank] = n;
}

}  // namespace

cudaError_t prefix_states(const PrefixArguments& a, int dim, cudaStream_t stream) {
  const std::int64_t blocks = divide_up(a.states * a.features, kThreads / 32);
  return with_value<32, 64>(dim, [&](auto width) {
    return launch(prefix_kernel<width()>, {blocks, kThreads}, stream, a);
  });
}

cudaError_t order_sequences(const std::int64_t* offsets, std::int32_t* order, int sequences,
                            cudaStream_t stream) {
  constexpr int kBlock = 128;
  return launch(order_kernel, {divide_up(sequences, kBlock), kBlock}, stream, offsets, order,
                sequences);
}

}  // namespace performer::kernels::cuda::hopper
