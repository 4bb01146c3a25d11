#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/portable/gradients.h"
#include "performer/kernels/cuda/portable/projection.cuh"
#include "performer/kernels/cuda/portable/rows.cuh"

// dv = sum_r phi_r dS_r,  dlog_r = phi_r (v . dS_r + dz_r),
// dk = sqrt(scale) sum_r dlog_r w_r - [norm term] scale (sum_r dlog_r) k
// 64 keys per block, features in slices of 64. Block b of a tile makes columns 64 b.. of dk and dv.
namespace performer::kernels::cuda::portable {
namespace {

inline constexpr int kKeyGradientBytes = 4 * kTileBytes + 4 * kTile * 4;

class KeyGradient {
 public:
  __device__ KeyGradient(const Problem& p, const StateView& state, const StateView& sums,
                         float* shared)
      : p_(p),
        state_(state),
        sums_(sums),
        k_(shared),
        v_(k_ + kTileFloats),
        left_(v_ + kTileFloats),
        right_(left_ + kTileFloats),
        term_(right_ + kTileFloats),
        bias_(term_ + kTile),
        scale_(bias_ + kTile),
        dz_(scale_ + kTile) {
    clear(dk_);
    clear(dv_);
#pragma unroll
    for (int i = 0; i < 4; ++i) total_[i] = 0;
  }

  __device__ void run(const Projection& w, const KeyTerms& keys, const Rows& k, const Rows& v,
                      std::int64_t index, int block) {
    for (int first = 0; first < w.m; first += kTile) {
      const Rows s = state_rows(p_, sums_.kv, index, first);
      float u[4][4], d[4][4];
      clear(u);
      clear(d);
      float square = 0;
      __syncthreads();
      if (threadIdx.x < kTile) load_terms(w, index, first);
      for (int column = 0; column < w.d; column += kTile) {
        if (column > 0) __syncthreads();
        if (first == 0 || w.d > kTile) load_columns(k_, k, column, keys);
        load_projection(left_, w, first, column);
        if (column == 0) {
          if (first == 0 || v.width > kTile) load_columns(v_, v, 0, keys);
          load_columns(right_, s, 0);
        }
        __syncthreads();
        if (first == 0) {
          if (p_.half_norm != 0) square = add_squares(k_, square);
          if (column + kTile >= w.d) store_terms(term_, keys, k.count, square);
        }
        gemm(u, k_, left_, depth_of(w.d, column));
      }
      gemm(d, v_, right_, depth_of(v.width, 0));
      for (int column = kTile; column < v.width; column += kTile) {
        __syncthreads();
        load_columns(v_, v, column, keys);
        load_columns(right_, s, column);
        __syncthreads();
        gemm(d, v_, right_, depth_of(v.width, column));
      }
      __syncthreads();
      differentiate(u, d, w.m - first);

      const int depth = depth_of(w.m, first);
      if (block * kTile < v.width) {
        store_acc_transposed(u, left_);
        load_rows(right_, s, block * kTile);
        __syncthreads();
        gemm(dv_, left_, right_, depth);
        __syncthreads();
      }
      if (block * kTile < w.d) {
        store_acc_transposed(d, left_);
        load_projection_rows(right_, w, first, block * kTile);
        __syncthreads();
        gemm(dk_, left_, right_, depth);
      }
    }
  }

  __device__ void store(const Rows& k, const Rows& dk, const Rows& dv, int block) {
    const int column = block * kTile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool masked = term_[row0() + i] == -infinity();
      total_[i] = row_lanes_sum(total_[i]) * p_.norm_gradient;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        dk_[i][j] = masked ? 0 : dk_[i][j] * p_.pull_back;
        if (masked) dv_[i][j] = 0;
      }
      if (masked) total_[i] = 0;
    }
    if (p_.norm_gradient != 0) {
      with_fetch(k, AllLive{}, [&](const auto& fetch) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (total_[i] == 0) continue;
          const float4 x = fetch(row_of(i), column + col0());
          dk_[i][0] = fmaf(total_[i], x.x, dk_[i][0]);
          dk_[i][1] = fmaf(total_[i], x.y, dk_[i][1]);
          dk_[i][2] = fmaf(total_[i], x.z, dk_[i][2]);
          dk_[i][3] = fmaf(total_[i], x.w, dk_[i][3]);
        }
      });
    }
    store_tokens(dk, column, dk_);
    store_tokens(dv, column, dv_);
  }

 private:
  __device__ void load_terms(const Projection& w, std::int64_t index, int first) {
    const int t = static_cast<int>(threadIdx.x);
    const std::int64_t at = index * p_.features + first + t;
    const bool real = first + t < w.m;
    bias_[t] = w.log2_bias(first + t);
    scale_[t] = real ? static_cast<float>(state_.log2_scale[at]) : 0;
    dz_[t] = real ? sums_.normalizer[at] : 0;
  }

  /// u becomes phi; d, of v . dS, the gradient for u in natural units. left: features from the
  /// slice's first on.
  __device__ void differentiate(float (&u)[4][4], float (&d)[4][4], int left) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = col0() + j;
      const float bias = bias_[r], scale = scale_[r], dz = dz_[r];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float term = term_[row0() + i];
        float phi, slope;
        if (p_.exponential) {
          phi = exp2_fast(u[i][j] + (bias + term) - scale);
          slope = phi;
        } else {
          phi = relu(u[i][j]) + p_.eps_value;
          slope = relu_slope(u[i][j]);
        }
        const bool there = r < left && term != -infinity();
        u[i][j] = there ? phi : 0;
        d[i][j] = there ? slope * (d[i][j] + dz) : 0;
        total_[i] += d[i][j];
      }
    }
  }

  const Problem& p_;
  const StateView &state_, &sums_;
  float *k_, *v_, *left_, *right_, *term_, *bias_, *scale_, *dz_;
  float dk_[4][4], dv_[4][4], total_[4];
};

/// Blocks: ((state head, slot of a tile), block of columns).
__global__ void __launch_bounds__(kThreads, 2)
    key_gradient(const __grid_constant__ Problem p, const __grid_constant__ StateView state,
                 const __grid_constant__ StateView sums, const __grid_constant__ TokenView dk,
                 const __grid_constant__ TokenView dv, int slots, int blocks) {
  extern __shared__ float4 shared[];
  const int block = static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks));
  const unsigned item = blockIdx.x / static_cast<unsigned>(blocks);
  const std::int64_t head = item / static_cast<unsigned>(slots);
  const SequenceTile tile = find_tile(p.key_offsets, p.sequences, p.key_length, kTile,
                                      item % static_cast<unsigned>(slots));
  const Span span = key_span(p, tile.sequence);
  if (tile.begin >= span.length) return;
  const std::int64_t first = span.begin + tile.begin, left = span.length - tile.begin;
  const std::int64_t key_head = head_of(head, p.state_heads, p.key_heads);
  const Rows k = rows_of(p.k, p.dtype, span.batch, key_head, first, left, p.dim);
  KeyGradient gradient(p, state, sums, reinterpret_cast<float*>(shared));
  gradient.run(key_projection(p, head), KeyTerms(p, head, span.batch, first), k,
               rows_of(p.v, p.dtype, span.batch, key_head, first, left, p.value_dim),
               tile.sequence * p.state_heads + head, block);
  gradient.store(k, rows_of(dk, p.dtype, span.batch, key_head, first, left, p.dim),
                 rows_of(dv, p.dtype, span.batch, key_head, first, left, p.value_dim), block);
}

}  // namespace

cudaError_t launch_key_gradient(const FavorProblem& problem, const StateView& state,
                                const StateView& sums, const TokenView& dk, const TokenView& dv,
                                cudaStream_t stream) {
  const Problem p = make_problem(problem);
  const std::int64_t slots = tile_slots(p.key_offsets, p.sequences, p.key_length, kTile);
  const std::int64_t width = p.dim > p.value_dim ? p.dim : p.value_dim;
  const std::int64_t blocks = divide_up(width, kTile);
  return launch(key_gradient, {p.state_heads * slots * blocks, kThreads, kKeyGradientBytes}, stream,
                p, state, sums, dk, dv, static_cast<int>(slots), static_cast<int>(blocks));
}

}  // namespace performer::kernels::cuda::portable
