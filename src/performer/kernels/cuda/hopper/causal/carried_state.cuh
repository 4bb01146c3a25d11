#pragma once

#include "performer/kernels/cuda/hopper/causal/layout.cuh"

// The state of a carrying warpgroup: S and z of its features in registers, features in rows, and
// their scales in shared memory.
namespace performer::kernels::cuda::hopper {

template <int kDim, int kOwned>
class CarriedState {
 protected:
  static constexpr int kSum = SumTile<kDim>::kColumns / 2;

  __device__ CarriedState(const ScanArguments& a, const ScanLayout<kDim>& layout,
                          const ScanBlock& block)
      : a_(a), layout_(layout), block_(block) {}

  /// The warpgroup among those that carry. What depends on it is made where it is used: kept, it
  /// would not leave enough registers. All lanes of a warp ask together.
  __device__ static int group() { return uniform(thread_again() / 128) - 1; }

  /// The first of a thread's features; those of slice i are 64 kGroups i further on, of h 8.
  __device__ static int first_feature(const Place& place) { return group() * kRows + place.row; }
  static constexpr int step(int i, int h) { return i * kGroups * kRows + 8 * h; }

  /// The thread's scales: that of feature first_feature() + step(i, h) is [64 i + 8 h]. Shared with
  /// its quad. All lanes of a warp ask together.
  __device__ float* scales() const {
    return layout_.unit(group()).own_scales() + Place(thread_again()).row;
  }

  __device__ void load_biases() const {
    const Projection &c = a_.carried_side, &r = a_.reading_side;
    const int wide = a_.slices * kRows, thread = static_cast<int>(threadIdx.x) - 128;
    if (thread < wide) {
      ScanBiases::carried()[thread] =
          c.bias[std::int64_t{block_.head} / (a_.heads / c.heads) * wide + thread];
      ScanBiases::reading()[thread] =
          r.bias[std::int64_t{block_.head} / (a_.heads / r.heads) * wide + thread];
    }
    sync_warpgroups(1);
  }

  __device__ void load() {
    const Place place(thread_again());
    const int first = first_feature(place);
    float* own = scales();
    const bool continues = a_.initial.kv != nullptr;
    const std::int64_t state = block_.state(a_, a_.initial_of_segments);
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = first + step(i, h);
        const bool inside = continues && r < a_.features;
        const std::int64_t at = state * a_.features + r;
        const float bias = ScanBiases::carried()[r];
        float c = kEmptyScale;
        if (inside) {
          c = static_cast<float>(a_.initial.log2_scale[at]);
          if (a_.reverse && !a_.initial_of_segments) c = -c;
        }
        // Features that no token reaches do not hold the others' scales down.
        if (bias == -INFINITY && c < kReachedScale) c = 0;
        own[kRows * i + 8 * h] = c;
#pragma unroll
        for (int j = 0; j < kDim / 8; ++j) {
          float2 s{0, 0};
          if (inside) {
            s = *reinterpret_cast<const float2*>(a_.initial.kv + at * kDim + 8 * j + place.column);
          }
          sum_[i][4 * j + 2 * h] = s.x, sum_[i][4 * j + 2 * h + 1] = s.y;
        }
        sum_[i][kDim / 2 + 2 * h] = inside && place.column == 0 ? a_.initial.normalizer[at] : 0.0F;
        sum_[i][kDim / 2 + 2 * h + 1] = 0;
      }
    }
    __syncwarp();
  }

  __device__ void store() const {
    const Place place(thread_again());
    const int first = first_feature(place);
    const float* own = scales();
    if (a_.last.kv == nullptr) return;
    if (!a_.last_of_segments && !block_.is_last(a_)) return;
    const std::int64_t state = block_.state(a_, a_.last_of_segments);
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = first + step(i, h);
        if (r >= a_.features) continue;
        const std::int64_t at = state * a_.features + r;
        float factor = 1;
        if (a_.last_scale != nullptr) {
          factor = exp2_fast(own[kRows * i + 8 * h] + static_cast<float>(a_.last_scale[at]));
        }
        const float z = normalizer(i, h);
        if (place.column == 0) {
          a_.last.normalizer[at] = z * factor;
          if (a_.last.log2_scale != nullptr) {
            const bool unreached = ScanBiases::carried()[r] == -INFINITY && z == 0;
            a_.last.log2_scale[at] =
                static_cast<std::int32_t>(unreached ? kEmptyScale : own[kRows * i + 8 * h]);
          }
        }
#pragma unroll
        for (int j = 0; j < kDim / 8; ++j) {
          *reinterpret_cast<float2*>(a_.last.kv + at * kDim + 8 * j + place.column) =
              float2{sum_[i][4 * j + 2 * h] * factor, sum_[i][4 * j + 2 * h + 1] * factor};
        }
      }
    }
  }

  /// z of a feature, in the first thread of its quad.
  __device__ float normalizer(int i, int h) const {
    return sum_[i][kDim / 2 + 2 * h] + sum_[i][kDim / 2 + 2 * h + 1];
  }

  __device__ float least_scale() const {
    const float* own = scales();
    float least = INFINITY;
#pragma unroll
    for (int i = 0; i < 2 * kOwned; ++i) least = fminf(least, own[kRows * (i / 2) + 8 * (i % 2)]);
    return least;
  }

  /// From c to `scale`, by all lanes of a quad alike; own: scales().
  __device__ void raise(float* own, int i, int h, float c, float scale) {
    const float raised = fminf(fmaxf(scale, -kScaleLimit), kScaleLimit);
    const float factor = exp2_fast(c - raised);
    own[kRows * i + 8 * h] = raised;
#pragma unroll
    for (int j = 0; j < SumTile<kDim>::kColumns / 8; ++j) {
      sum_[i][4 * j + 2 * h] *= factor;
      sum_[i][4 * j + 2 * h + 1] *= factor;
    }
  }

  const ScanArguments& a_;
  const ScanLayout<kDim>& layout_;
  const ScanBlock& block_;
  float sum_[kOwned][kSum];
};

}  // namespace performer::kernels::cuda::hopper
