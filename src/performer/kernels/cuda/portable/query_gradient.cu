#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/portable/gradients.h"
#include "performer/kernels/cuda/portable/projection.cuh"
#include "performer/kernels/cuda/portable/rows.cuh"

// dq = sqrt(scale) sum_r dlog_r w_r,  dlog_r = p_r (g . S_r - along z_r) / den
// 64 queries per block, features in slices of 64. The difference comes before the division, so that
// it is 0 where one feature decides.
namespace performer::kernels::cuda::portable {
namespace {

inline constexpr int kQueryGradientBytes = 4 * kTileBytes + 6 * kTile * 4;

template <int kBlocks>
class QueryGradient {
 public:
  __device__ QueryGradient(const Problem& p, const BackwardInputs& in, const float* along,
                           float* shared, std::int64_t row, int count)
      : p_(p),
        in_(in),
        q_(shared),
        g_(q_ + kTileFloats),
        left_(g_ + kTileFloats),
        right_(left_ + kTileFloats),
        bias_(right_ + kTileFloats),
        scale_(bias_ + kTile),
        z_(scale_ + kTile),
        shift_(z_ + kTile),
        inverse_(shift_ + kTile),
        along_(inverse_ + kTile) {
    if (threadIdx.x < kTile) {
      const int t = static_cast<int>(threadIdx.x);
      float shift = 0, inverse = 0, own_along = 0;
      if (t < count) {
        const RowInverse own(p.exponential, in.row_sum[row + t], in.row_log2_scale[row + t]);
        shift = own.shift, inverse = own.inverse;
        own_along = inverse == 0 ? 0 : along[row + t];
      }
      shift_[t] = shift, inverse_[t] = inverse, along_[t] = own_along;
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) clear(dq_[b]);
  }

  __device__ void run(const Projection& w, const Rows& q, const Rows& g, std::int64_t index) {
    for (int first = 0; first < w.m; first += kTile) {
      const Rows s = state_rows(p_, in_.state.kv, index, first);
      __syncthreads();
      if (threadIdx.x < kTile) load_terms(w, index, first);
      if (first == 0 || w.d > kTile) load_columns(q_, q, 0);
      if (first == 0 || g.width > kTile) load_columns(g_, g, 0);
      load_projection(left_, w, first, 0);
      load_columns(right_, s, 0);
      __syncthreads();
      float u[4][4], d[4][4];
      clear(u);
      gemm(u, q_, left_, depth_of(w.d, 0));
      for (int column = kTile; column < w.d; column += kTile) {
        __syncthreads();
        load_columns(q_, q, column);
        load_projection(left_, w, first, column);
        __syncthreads();
        gemm(u, q_, left_, depth_of(w.d, column));
      }
      clear(d);
      gemm(d, g_, right_, depth_of(g.width, 0));
      for (int column = kTile; column < g.width; column += kTile) {
        __syncthreads();
        load_columns(g_, g, column);
        load_columns(right_, s, column);
        __syncthreads();
        gemm(d, g_, right_, depth_of(g.width, column));
      }
      differentiate(u, d, w.m);
      __syncthreads();
      store_acc_transposed(d, left_);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (b > 0) __syncthreads();
        load_projection_rows(right_, w, first, b * kTile);
        __syncthreads();
        gemm(dq_[b], left_, right_, depth_of(w.m, first));
      }
    }
  }

  __device__ void store(const Rows& dq) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) dq_[b][i][j] *= p_.pull_back;
      }
      store_tokens(dq, b * kTile, dq_[b]);
    }
  }

 private:
  __device__ void load_terms(const Projection& w, std::int64_t index, int first) {
    const int t = static_cast<int>(threadIdx.x);
    const std::int64_t at = index * p_.features + first + t;
    const bool real = first + t < w.m;
    bias_[t] = w.log2_bias(first + t);
    scale_[t] = real ? static_cast<float>(in_.state.log2_scale[at]) : 0;
    z_[t] = real ? in_.state.normalizer[at] : 0;
  }

  /// d: from g . S to the gradient for u, in natural units. m: features of all slices. One slice
  /// has all that along and the denominator are made of: made here, they cancel best.
  __device__ void differentiate(const float (&u)[4][4], float (&d)[4][4], int m) const {
    float biases[4], scales[4], zs[4];
    load_four(biases, bias_ + col0());
    load_four(scales, scale_ + col0());
    load_four(zs, z_ + col0());
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float shift = shift_[row_of(i)];
      float inverse = inverse_[row_of(i)], along = along_[row_of(i)];
      float phi[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        phi[j] = p_.exponential ? exp2_fast(u[i][j] + biases[j] + (scales[j] - shift))
                                : relu(u[i][j]) + p_.eps_value;
      }
      if (m <= kTile) {
        float sum = 0, total = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (col0() + j >= m) continue;
          sum = fmaf(phi[j], d[i][j], sum);
          total = fmaf(phi[j], zs[j], total);
        }
        sum = row_lanes_sum(sum), total = row_lanes_sum(total);
        inverse = inverse == 0 || total == 0 ? 0 : 1 / total;
        along = sum * inverse;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float slope = p_.exponential ? phi[j] : relu_slope(u[i][j]);
        const float difference = fmaf(-along, zs[j], d[i][j]) * inverse;
        d[i][j] = inverse == 0 ? 0 : difference * slope;
      }
    }
  }

  const Problem& p_;
  const BackwardInputs& in_;
  float *q_, *g_, *left_, *right_, *bias_, *scale_, *z_;
  float *shift_, *inverse_, *along_;  // [kTile] of the rows
  float dq_[kBlocks][4][4];
};

/// Blocks: (head, slot of a tile).
template <int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks == 4 ? 1 : 2)
    query_gradient(const __grid_constant__ Problem p, const __grid_constant__ BackwardInputs in,
                   const float* along, const __grid_constant__ TokenView dq, int slots) {
  extern __shared__ float4 shared[];
  const std::int64_t head = blockIdx.x / static_cast<unsigned>(slots);
  const SequenceTile tile = find_tile(p.query_offsets, p.sequences, p.query_length, kTile,
                                      blockIdx.x % static_cast<unsigned>(slots));
  const Span span = query_span(p, tile.sequence);
  if (tile.begin >= span.length) return;
  const std::int64_t first = span.begin + tile.begin, left = span.length - tile.begin;
  const Rows q = rows_of(p.q, p.dtype, span.batch, head, first, left, p.dim);
  QueryGradient<kBlocks> gradient(p, in, along, reinterpret_cast<float*>(shared),
                                  row_index(p, span.batch, head, first), q.count);
  gradient.run(query_projection(p, head), q,
               rows_of(in.grad_out, p.dtype, span.batch, head, first, left, p.value_dim),
               tile.sequence * p.state_heads + head_of(head, p.heads, p.state_heads));
  gradient.store(rows_of(dq, p.dtype, span.batch, head, first, left, p.dim));
}

}  // namespace

cudaError_t launch_query_gradient(const FavorProblem& problem, const BackwardInputs& in,
                                  const float* along, const TokenView& dq, cudaStream_t stream) {
  const Problem p = make_problem(problem);
  const std::int64_t slots = tile_slots(p.query_offsets, p.sequences, p.query_length, kTile);
  const auto with = [&]<int kBlocks>() {
    return launch(query_gradient<kBlocks>, {p.heads * slots, kThreads, kQueryGradientBytes}, stream,
                  p, in, along, dq, static_cast<int>(slots));
  };
  if (p.dim > 2 * kTile) return with.template operator()<4>();
  if (p.dim > kTile) return with.template operator()<2>();
  return with.template operator()<1>();
}

}  // namespace performer::kernels::cuda::portable
