#pragma once

#include "performer/kernels/cuda/common/maps.cuh"
#include "performer/kernels/cuda/decode/cluster.cuh"
#include "performer/kernels/cuda/decode/project.cuh"
#include "performer/kernels/cuda/decode/ring.cuh"

// A block's part of a step: some features of one state head, for kGroup of its query heads at a
// time. The first pass updates the state; passes for further query heads read what it wrote. Slices
// of features are joined as blocks of a cluster are: sums in the scale of the largest shift.
namespace performer::kernels::cuda::decode {

template <int kWidth, int kGroup>
class Head {
 public:
  __device__ __forceinline__ Head(const Step& step, float* memory)
      : s_(step),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        item_(static_cast<int>(blockIdx.x) / step.plan.splits),
        split_(static_cast<int>(blockIdx.x) - item_ * step.plan.splits),
        batch_(item_ / step.heads),
        head_(item_ - batch_ * step.heads),
        live_(is_live()) {}

  /// Query heads first .. first + kGroup - 1 of the group, as far as there are any.
  __device__ __forceinline__ void run(int first) {
    first_ = first;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      den_[g] = 0, shift_[g] = -kScaleLimit;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) num_[g][e] = 0;
    }
    const int begin = split_ * s_.plan.features;
    const int end = min(begin + s_.plan.features, s_.features);
    bool reached = false;
    for (int slice = begin; slice < end; slice += kSlice) {
      reached = add_slice(slice, min(kSlice, end - slice), slice == begin) || reached;
    }
    finish(reached);
  }

 private:
  __device__ __forceinline__ float* shared(int offset) const { return memory_ + offset; }
  /// Of a feature in the tensors [N, Hs, M'].
  __device__ __forceinline__ std::int64_t row(int feature) const {
    return static_cast<std::int64_t>(item_) * s_.features + feature;
  }
  __device__ __forceinline__ int query_head(int g) const { return head_ * s_.group + first_ + g; }
  __device__ __forceinline__ bool present(int g) const { return first_ + g < s_.group; }
  __device__ __forceinline__ bool updates() const { return first_ == 0; }

  __device__ __forceinline__ float key_bias() const {
    const FavorProblem& p = s_.problem;
    if (p.key_bias == nullptr) return 0;
    const int head = head_ / (s_.heads / static_cast<int>(p.key_bias_heads));
    return p.key_bias[batch_ * p.key_bias_batch + head * p.key_bias_head];
  }
  __device__ __forceinline__ bool is_live() const {
    const FavorProblem& p = s_.problem;
    return (p.key_mask == nullptr || p.key_mask[batch_ * p.mask_batch]) &&
           key_bias() != -infinity();
  }

  /// Features slice .. slice + count - 1. Returns whether a key reached them. Ends in a barrier.
  __device__ __forceinline__ bool add_slice(int slice, int count, bool first_slice) {
    float scale[kOwned], z[kOwned];
    load_owned(slice, count, scale, z);
    // Small loads first: they would wait behind the copies.
    Tokens tokens{};
    if (first_slice) tokens = load_tokens();
    if (updates()) ring(slice, count).begin();
    if (first_slice) store_tokens(tokens);
    __syncthreads();
    project_all(slice, count);
    __syncthreads();
    if (updates()) add_key(slice, count, scale, z);
    const bool reached = weigh(slice, count, scale, z);
    walk(slice, count);
    __syncthreads();
    return reached;
  }

  __device__ __forceinline__ Ring<kWidth> ring(int slice, int count) const {
    return {memory_, s_.plan, s_.problem.initial.kv + row(slice) * s_.value_dim, count};
  }

  /// Scale and z of the features that the thread owns: slice + thread, + kThreads, ...
  __device__ __forceinline__ void load_owned(int slice, int count, float (&scale)[kOwned],
                                             float (&z)[kOwned]) const {
    const StateView& from = updates() ? s_.problem.initial : s_.state;
#pragma unroll
    for (int n = 0; n < kOwned; ++n) {
      const int i = thread_ + n * kThreads;
      scale[n] = kEmptyScale, z[n] = 0;
      if (i >= count) continue;
      const auto c = static_cast<float>(from.log2_scale[row(slice + i)]);
      const float sum = from.normalizer[row(slice + i)];
      if (c > kReachedScale) scale[n] = c, z[n] = sum;
    }
  }

  /// Key and value (0 where they are masked: they may hold anything) and the queries, the thread's
  /// element of each.
  struct Tokens {
    float key, value, query[kGroup];
  };
  __device__ __forceinline__ Tokens load_tokens() const {
    const FavorProblem& p = s_.problem;
    const auto load = [&](const TokenView& view, int head) {
      return load_element(view.data, p.dtype,
                          batch_ * view.batch + head * view.head + thread_ * view.element);
    };
    const int key_head = head_ / s_.shares.key;
    const bool there = thread_ < s_.dim;
    Tokens tokens;
    tokens.key = there && live_ ? load(p.k, key_head) : 0.0F;
    tokens.value = thread_ < s_.value_dim && live_ ? load(p.v, key_head) : 0.0F;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      tokens.query[g] = there && present(g) ? load(p.q, query_head(g)) : 0.0F;
    }
    return tokens;
  }
  __device__ __forceinline__ void store_tokens(const Tokens& tokens) const {
    if (thread_ < s_.value_dim) shared(s_.layout.v)[thread_] = tokens.value;
    if (thread_ >= s_.layout.dim) return;
    float* x = shared(s_.layout.x) + thread_;
    x[0] = tokens.key;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) x[(1 + g) * s_.layout.dim] = tokens.query[g];
  }

  /// u of the key and of the queries; in one pass over W where they share it.
  __device__ __forceinline__ void project_all(int slice, int count) const {
    const Weights key(s_, s_.problem.w_key, head_ / s_.shares.w_key);
    const float* x = shared(s_.layout.x);
    float* u = shared(s_.layout.u);
    bool common = true;
#pragma unroll
    for (int g = 0; g < kGroup; ++g)
      common = common && (!present(g) || query_weights(g).w == key.w);
    if (common) {
      project<1 + kGroup>(key, x, s_.layout.dim, u, s_.layout.slice, slice, count);
      return;
    }
#pragma unroll 1
    for (int j = 0; j <= kGroup && (j == 0 || present(j - 1)); ++j) {
      project<1>(j == 0 ? key : query_weights(j - 1), x + j * s_.layout.dim, s_.layout.dim,
                 u + j * s_.layout.slice, s_.layout.slice, slice, count);
    }
  }
  __device__ __forceinline__ Weights query_weights(int g) const {
    return {s_, s_.problem.w_query, query_head(g) / s_.shares.w_query};
  }

  /// W x with the constants of the map and the bias: a log2 feature, or u of the generalised map.
  __device__ __forceinline__ float scaled(float u, const Parameter& bias, int head,
                                          int feature) const {
    const Problem& p = s_.problem;
    const float l = fmaf(u, p.projection.high, u * p.projection.low);
    if (bias.data == nullptr) return l;
    const float b = static_cast<const float*>(bias.data)[head * s_.features + feature];
    return l + fmaf(b, p.bias.high, b * p.bias.low);
  }

  /// u of the key becomes its features phi; scale, z and the factors 2^(c - c') of the thread's own
  /// features, which it stores.
  __device__ __forceinline__ void add_key(int slice, int count, float (&scale)[kOwned],
                                          float (&z)[kOwned]) const {
    const Problem& p = s_.problem;
    float square = 0;
    for (int i = 0; i < s_.layout.dim && p.half_norm != 0; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(shared(s_.layout.x) + i);
      square = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, square))));
    }
    const float term =
        fmaf(p.half_norm, square, live_ ? key_bias() * static_cast<float>(kLog2E) : 0.0F);
    float* phis = shared(s_.layout.u);
#pragma unroll
    for (int n = 0; n < kOwned; ++n) {
      const int i = thread_ + n * kThreads;
      if (i >= count) continue;
      float factor = 1, phi = 0;
      if (live_) {
        const float before = scale[n];
        const float u = scaled(phis[i], p.bias_key, head_ / s_.shares.bias_key, slice + i);
        const float l = p.exponential ? u + term : 0.0F;
        scale[n] = fmaxf(before, round_up_log2(l));
        factor = exp2_integer(before - scale[n]);
        phi = p.exponential ? exp2_fast(l - scale[n]) : relu(u) + p.eps_value;
        z[n] = fmaf(z[n], factor, phi);
      }
      phis[i] = phi;
      shared(s_.layout.factor)[i] = factor;
      s_.state.normalizer[row(slice + i)] = z[n];
      s_.state.log2_scale[row(slice + i)] = static_cast<std::int32_t>(scale[n]);
    }
  }

  /// u of the queries becomes their weights 2^(l + c - shift), shift the largest so far; the sums
  /// of earlier slices are taken along. Whether any key reached the features. Ends in a barrier.
  __device__ __forceinline__ bool weigh(int slice, int count, const float (&scale)[kOwned],
                                        const float (&z)[kOwned]) {
    const Problem& p = s_.problem;
    float* weights = shared(s_.layout.u) + s_.layout.slice;
    float top[kGroup];
    bool reached = false;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) top[g] = -infinity();
#pragma unroll
    for (int n = 0; n < kOwned; ++n) {
      const int i = thread_ + n * kThreads;
      if (i >= count) continue;
      reached = reached || scale[n] > kReachedScale;
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        if (!present(g)) continue;
        float& w = weights[g * s_.layout.slice + i];
        w = scaled(w, p.bias_query, query_head(g) / s_.shares.bias_query, slice + i);
        top[g] = fmaxf(top[g], w + scale[n]);
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int lane = 16; lane > 0; lane /= 2) {
        top[g] = fmaxf(top[g], __shfl_xor_sync(0xffffffffU, top[g], lane));
      }
      if (thread_ % 32 == 0) shared(s_.layout.parts)[g * kWarps + thread_ / 32] = top[g];
    }
    reached = __syncthreads_or(reached ? 1 : 0) != 0;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      float most = -infinity();
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared(s_.layout.parts)[g * kWarps + w]);
      const float shift = p.exponential ? fmaxf(shift_[g], round_up_log2(most)) : 0.0F;
      const float factor = exp2_integer(shift_[g] - shift);
      shift_[g] = shift;
      den_[g] *= factor;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) num_[g][e] *= factor;
    }
#pragma unroll
    for (int n = 0; n < kOwned; ++n) {
      const int i = thread_ + n * kThreads;
      if (i >= count) continue;
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        if (!present(g)) continue;
        float& w = weights[g * s_.layout.slice + i];
        w = p.exponential ? exp2_fast(w + (scale[n] - shift_[g])) : relu(w) + p.eps_value;
        den_[g] = fmaf(w, z[n], den_[g]);
      }
    }
    __syncthreads();
    return reached;
  }

  __device__ __forceinline__ void multiply(int at, const float (&x)[kWidth]) {
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const float weight = shared(s_.layout.u)[(1 + g) * s_.layout.slice + at];
#pragma unroll
      for (int e = 0; e < kWidth; ++e) num_[g][e] = fmaf(weight, x[e], num_[g][e]);
    }
  }

  /// The rows of S: updated and stored in the first pass, and multiplied with the weights.
  __device__ __forceinline__ void walk(int slice, int count) {
    using Packed = typename Vector<kWidth>::Type;
    float* to = s_.state.kv + row(slice) * s_.value_dim;
    if (updates()) {
      const auto value = *reinterpret_cast<const Packed*>(shared(s_.layout.v) +
                                                          thread_ % s_.plan.columns * kWidth);
      const auto& v = reinterpret_cast<const float(&)[kWidth]>(value);
      const bool stored = live_ || s_.state.kv != s_.problem.initial.kv;
      ring(slice, count).walk([&](int at, const float(&x)[kWidth], int offset) {
        const float factor = shared(s_.layout.factor)[at], phi = shared(s_.layout.u)[at];
        alignas(Packed) float y[kWidth];
#pragma unroll
        for (int e = 0; e < kWidth; ++e) y[e] = fmaf(phi, v[e], x[e] * factor);
        if (stored) *reinterpret_cast<Packed*>(to + offset) = *reinterpret_cast<const Packed*>(y);
        multiply(at, y);
      });
      return;
    }
    const int rows = s_.plan.rows, columns = s_.plan.columns;
    for (int at = thread_ / columns; at < count && thread_ < rows * columns; at += rows) {
      const auto x =
          *reinterpret_cast<const Packed*>(to + (at * columns + thread_ % columns) * kWidth);
      multiply(at, reinterpret_cast<const float(&)[kWidth]>(x));
    }
  }

  /// Sums over the block's threads, then over the cluster's blocks, and the outputs.
  __device__ __forceinline__ void finish(bool reached) {
    const int dv = s_.value_dim, rows = s_.plan.rows, columns = s_.plan.columns;
    float* sums = memory_;
    if (thread_ < rows * columns) {
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        float* to = sums + (g * rows + thread_ / columns) * dv + thread_ % columns * kWidth;
#pragma unroll
        for (int e = 0; e < kWidth; ++e) to[e] = num_[g][e];
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int lane = 16; lane > 0; lane /= 2) {
        den_[g] += __shfl_xor_sync(0xffffffffU, den_[g], lane);
      }
      if (thread_ % 32 == 0)
        shared(s_.layout.parts)[(kGroup + g) * kWarps + thread_ / 32] = den_[g];
      if (thread_ == 0) shared(s_.layout.shift)[g] = shift_[g];
    }
    if (thread_ == 0) *shared(s_.layout.reached) = reached ? 1.0F : 0.0F;
    __syncthreads();
    for (int i = thread_; i < kGroup * dv; i += kThreads) {
      const float* from = sums + i / dv * rows * dv + i % dv;
      float sum = 0;
      for (int r = 0; r < rows; ++r) sum += from[r * dv];
      shared(s_.layout.num)[i] = sum;
    }
    if (thread_ < kGroup) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) {
        sum += shared(s_.layout.parts)[(kGroup + thread_) * kWarps + w];
      }
      shared(s_.layout.den)[thread_] = sum;
    }
    if (s_.plan.splits == 1) {
      __syncthreads();
      store([](const float* x, int /*rank*/) { return *x; });
      __syncthreads();
    } else {
      cluster_barrier();
      if (split_ == 0) store([](const float* x, int rank) { return load_peer(x, rank); });
      cluster_barrier();
    }
  }

  /// load(address, block): what the block of the cluster has there.
  template <class Load>
  __device__ __forceinline__ void store(const Load& load) const {
    const int dv = s_.value_dim, splits = s_.plan.splits;
    for (int i = thread_; i < kGroup * dv && present(i / dv); i += kThreads) {
      const int g = i / dv;
      float shift = -kScaleLimit, num = 0, den = 0, reached = 0;
      for (int s = 0; s < splits; ++s) {
        const float theirs = load(shared(s_.layout.shift) + g, s), most = fmaxf(shift, theirs);
        const float before = exp2_integer(shift - most), factor = exp2_integer(theirs - most);
        num = fmaf(load(shared(s_.layout.num) + i, s), factor, num * before);
        den = fmaf(load(shared(s_.layout.den) + g, s), factor, den * before);
        reached = fmaxf(reached, load(shared(s_.layout.reached), s));
        shift = most;
      }
      // A denominator of exactly 0 gives 0. Where exponential features sum to 0 after a key, they
      // left the range of the scales.
      const float lost = reached != 0 && s_.problem.exponential ? quiet_nan() : 0.0F;
      const std::int64_t at =
          batch_ * s_.out.batch + query_head(g) * s_.out.head + (i - g * dv) * s_.out.element;
      store_element(s_.out.data, s_.problem.dtype, at, den == 0 ? lost : num / den);
    }
  }

  const Step& s_;
  float* memory_;
  int thread_, item_, split_, batch_, head_;  // item: the state's, batch * heads + head
  int first_ = 0;                             // of the pass's query heads, in the group
  bool live_;                                 // the key is there
  // Of the thread's rows of S and features:
  float num_[kGroup][kWidth], den_[kGroup], shift_[kGroup];
};

}  // namespace performer::kernels::cuda::decode
