#pragma once

#include "performer/kernels/cuda/portable/causal/call.cuh"

// Padded states of the walks and the tensors of a call they begin with and end as.
namespace performer::kernels::cuda::portable {

/// What the walks begin with: the initial state forwards, the final state's gradient backwards,
/// whose true values are those of the tensors times 2^-c.
class BoundaryState {
 public:
  static __host__ __device__ BoundaryState initial(const Problem& p) {
    return {p, p.initial, p.initial.log2_scale, 1, false};
  }
  /// dS of generalised maps has the scale 1 of their features.
  static __host__ __device__ BoundaryState gradient(const Problem& p, const BackwardInputs& in) {
    return {p, in.grad_state, in.state.log2_scale, -1, !p.exponential};
  }

  __device__ __forceinline__ float scale(std::int64_t item, int r) const {
    if (r >= m_) return kEmptyScale;
    if (fixed_) return 0;
    if (values_.normalizer == nullptr) return kEmptyScale;
    const auto c = static_cast<float>(scales_[item * m_ + r]);
    return c > kReachedScale ? sign_ * c : kEmptyScale;
  }
  __device__ __forceinline__ float normalizer(std::int64_t item, int r) const {
    return present(item, r) ? values_.normalizer[item * m_ + r] : 0.0F;
  }
  __device__ __forceinline__ float sum(std::int64_t item, int r, int e) const {
    return e < dv_ && present(item, r) ? values_.kv[(item * m_ + r) * dv_ + e] : 0.0F;
  }

 private:
  __host__ __device__ BoundaryState(const Problem& p, const StateView& values,
                                    const std::int32_t* scales, float sign, bool fixed)
      : values_(values),
        scales_(scales),
        m_(static_cast<int>(p.features)),
        dv_(static_cast<int>(p.value_dim)),
        sign_(sign),
        fixed_(fixed) {}

  __device__ __forceinline__ bool present(std::int64_t item, int r) const {
    return values_.normalizer != nullptr && scale(item, r) > kReachedScale;
  }

  StateView values_;
  const std::int32_t* scales_;
  int m_, dv_;
  float sign_;
  bool fixed_;
};

/// The block sets a state. Ends in a barrier.
__device__ __forceinline__ void load_boundary(const CausalCall& call, const BoundaryState& from,
                                              std::int64_t item, const CausalState& to) {
  const int stride = call.values_padded(), features = call.features_padded();
  for (int r = warp_id(); r < features; r += kWarps) {
    float* row = to.sum + static_cast<std::int64_t>(r) * stride;
    for (int e = lane_id(); e < stride; e += 32) row[e] = from.sum(item, r, e);
  }
  for (int r = static_cast<int>(threadIdx.x); r < features; r += kThreads) {
    to.normalizer[r] = from.normalizer(item, r);
    to.scale[r] = from.scale(item, r);
  }
  __syncthreads();
}

/// The block writes an item's final state.
__device__ __forceinline__ void store_final(const CausalCall& call, const CausalState& from,
                                            std::int64_t item, const StateView& to) {
  const int m = static_cast<int>(call.problem.features);
  const int dv = static_cast<int>(call.problem.value_dim), stride = call.values_padded();
  if (to.normalizer == nullptr) return;
  for (int r = warp_id(); r < m; r += kWarps) {
    const float* row = from.sum + static_cast<std::int64_t>(r) * stride;
    for (int e = lane_id(); e < dv; e += 32) to.kv[(item * m + r) * dv + e] = row[e];
  }
  for (int r = static_cast<int>(threadIdx.x); r < m; r += kThreads) {
    to.normalizer[item * m + r] = from.normalizer[r];
    if (to.log2_scale != nullptr) {
      to.log2_scale[item * m + r] = static_cast<std::int32_t>(from.scale[r]);
    }
  }
}

/// The block writes the gradient for the initial state's tensors, from that for its true values,
/// dS 2^e: times 2^(initial scale). A feature no key ever reached hands the final gradient through.
__device__ __forceinline__ void store_initial_gradient(const CausalCall& call,
                                                       const CausalState& from, std::int64_t item,
                                                       const BackwardInputs& in,
                                                       const StateView& to) {
  const Problem& p = call.problem;
  const int m = static_cast<int>(p.features), dv = static_cast<int>(p.value_dim);
  const int stride = call.values_padded();
  if (to.normalizer == nullptr) return;
  for (int r = warp_id(); r < m; r += kWarps) {
    const std::int64_t at = item * m + r;
    const auto initial = static_cast<float>(p.initial.log2_scale[at]);
    const bool untouched = initial <= kReachedScale;
    const bool through = untouched && static_cast<float>(in.state.log2_scale[at]) <= kReachedScale;
    const float shift = from.scale[r] + initial;
    const auto pass = [&](const float* passed, std::int64_t i, float own) {
      if (through) return passed == nullptr ? 0.0F : passed[i];
      return untouched ? 0.0F : scale_pow2(own, shift);
    };
    const float* row = from.sum + static_cast<std::int64_t>(r) * stride;
    for (int e = lane_id(); e < dv; e += 32) {
      to.kv[at * dv + e] = pass(in.grad_state.kv, at * dv + e, row[e]);
    }
    if (lane_id() == 0) {
      to.normalizer[at] = pass(in.grad_state.normalizer, at, from.normalizer[r]);
    }
  }
}

}  // namespace performer::kernels::cuda::portable
