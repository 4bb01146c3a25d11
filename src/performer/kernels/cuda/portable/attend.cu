#include "performer/kernels/cuda/portable/attend.h"

#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/portable/projection.cuh"
#include "performer/kernels/cuda/portable/rows.cuh"

// Queries against the state: 64 or 128 tokens a block, features in slices of 64. Rows keep a
// running shift: when a slice raises it, what the row has so far is rescaled by a power of two.
namespace performer::kernels::cuda::portable {
namespace {

struct AttendTargets {
  TokenView out;  // null where along is wanted
  float* row_sum;
  std::int32_t* row_log2_scale;
  TokenView grad_out;
  float* along;
};

template <int R>
inline constexpr int kQueryTokens = kTile*(R / 4);
template <int R>
inline constexpr int kAttendBytes = (2 * (R / 4) + 1) * kTileBytes + 3 * kTile * 4;

template <int R, int kBlocks>
class Attend {
 public:
  __device__ Attend(const Problem& p, const StateView& state, float* shared)
      : p_(p),
        state_(state),
        q_(shared),
        weights_(q_ + (R / 4) * kTileFloats),
        w_(weights_),  // W is read before weights are written
        s_(weights_ + (R / 4) * kTileFloats),
        bias_(s_ + kTileFloats),
        scale_(bias_ + kTile),
        z_(scale_ + kTile) {
#pragma unroll
    for (int i = 0; i < R; ++i) shift_[i] = -kScaleLimit, sum_[i] = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) clear(out_[b]);
  }

  /// Rows q of one head against state `index`.
  __device__ void run(const Projection& w, const Rows& q, std::int64_t index) {
    int reached = 0;
    for (int first = 0; first < w.m; first += kTile) {
      const Rows s = state_rows(p_, state_.kv, index, first);
      __syncthreads();
      if (threadIdx.x < kTile) reached |= load_terms(w, index, first);
      load_rows(s_, s, 0);
      float u[R][4];
      project(w, q, first, u);
      __syncthreads();
      if (p_.exponential) {
        exponentials(u, w.m - first);
      } else {
        values(u, w.m - first);
      }
      store_acc_transposed(u, weights_);
      __syncthreads();
      const int depth = depth_of(w.m, first);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (b > 0) {
          __syncthreads();
          load_rows(s_, s, b * kTile);
          __syncthreads();
        }
        gemm(out_[b], weights_, s_, depth);
      }
    }
    divide(__syncthreads_or(reached) != 0);
  }

  __device__ void store(const AttendTargets& to, const Rows& out, std::int64_t row) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) store_tokens(out, b * kTile, out_[b]);
    if (col0() != 0 || to.row_sum == nullptr) return;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (row_of(i) >= out.count) continue;
      to.row_sum[row + row_of(i)] = sum_[i];
      to.row_log2_scale[row + row_of(i)] =
          p_.exponential ? static_cast<std::int32_t>(shift_[i]) : 0;
    }
  }

  __device__ void store_along(float* to, const Rows& g) const {
    float along[R];
    with_fetch(g, AllLive{}, [&](const auto& fetch) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
        along[i] = 0;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          const float4 x = fetch(row_of(i), b * kTile + col0());
          // Columns beyond the width are 0 on both sides.
          along[i] = fmaf(x.x, out_[b][i][0], along[i]);
          along[i] = fmaf(x.y, out_[b][i][1], along[i]);
          along[i] = fmaf(x.z, out_[b][i][2], along[i]);
          along[i] = fmaf(x.w, out_[b][i][3], along[i]);
        }
      }
    });
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float total = row_lanes_sum(along[i]);
      if (col0() == 0 && row_of(i) < g.count) to[row_of(i)] = total;
    }
  }

 private:
  /// Whether the thread's feature has met a key.
  __device__ int load_terms(const Projection& w, std::int64_t index, int first) {
    const int t = static_cast<int>(threadIdx.x);
    const std::int64_t at = index * p_.features + first + t;
    const bool real = first + t < w.m;
    bias_[t] = w.log2_bias(first + t);
    scale_[t] = real ? static_cast<float>(state_.log2_scale[at]) : 0;
    z_[t] = real ? state_.normalizer[at] : 0;
    return static_cast<int>(real && scale_[t] > kReachedScale);
  }

  /// u [token, feature] = q W^T.
  __device__ void project(const Projection& w, const Rows& q, int first, float (&u)[R][4]) {
    clear(u);
    for (int column = 0; column < w.d; column += kTile) {
      if (column > 0) __syncthreads();
      if (w.d > kTile || first == 0) {
#pragma unroll
        for (int n = 0; n < R / 4; ++n) {
          load_columns(q_ + n * kTileFloats, skip_rows(q, n * kTile), column);
        }
      }
      load_projection(w_, w, first, column);
      __syncthreads();
      gemm(u, q_, w_, depth_of(w.d, column));
    }
  }

  /// Weights p relative to the running shift. left: features from the slice's first on.
  __device__ void exponentials(float (&u)[R][4], int left) {
    float biases[4], scales[4], zs[4];
    load_four(biases, bias_ + col0());
    load_four(scales, scale_ + col0());
    load_four(zs, z_ + col0());
#pragma unroll
    for (int i = 0; i < R; ++i) {
      float top = -infinity();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        u[i][j] = col0() + j < left ? u[i][j] + biases[j] : -infinity();
        top = fmaxf(top, u[i][j] + scales[j]);
      }
      const float needed = round_up_log2(row_lanes_max(top));
      if (needed > shift_[i]) lift(i, needed);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        u[i][j] = exp2_fast(u[i][j] + (scales[j] - shift_[i]));
        sum_[i] = fmaf(u[i][j], zs[j], sum_[i]);
      }
    }
  }

  __device__ void values(float (&u)[R][4], int left) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        u[i][j] = col0() + j < left ? relu(u[i][j]) + p_.eps_value : 0;
        sum_[i] = fmaf(u[i][j], z_[col0() + j], sum_[i]);
      }
    }
  }

  __device__ void lift(int i, float to) {
    const float factor = exp2_integer(shift_[i] - to);
    shift_[i] = to;
    sum_[i] *= factor;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 4; ++j) out_[b][i][j] *= factor;
    }
  }

  /// A denominator of exactly 0 gives 0. Where exponential features sum to 0 after a key, they left
  /// the range of the scales.
  __device__ void divide(bool reached) {
    const float without = reached && p_.exponential ? quiet_nan() : 0;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      sum_[i] = row_lanes_sum(sum_[i]);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          out_[b][i][j] = sum_[i] == 0 ? without : out_[b][i][j] / sum_[i];
        }
      }
    }
  }

  const Problem& p_;
  const StateView& state_;
  float *q_, *weights_, *w_, *s_, *bias_, *scale_, *z_;
  float out_[kBlocks][R][4], shift_[R], sum_[R];
};

/// Blocks: (head, slot of a tile).
template <int R, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks == 4 ? 1 : 2)
    attend_queries(const __grid_constant__ Problem p, const __grid_constant__ StateView state,
                   const __grid_constant__ AttendTargets to, int slots) {
  extern __shared__ float4 shared[];
  const std::int64_t head = blockIdx.x / static_cast<unsigned>(slots);
  const SequenceTile tile = find_tile(p.query_offsets, p.sequences, p.query_length, kQueryTokens<R>,
                                      blockIdx.x % static_cast<unsigned>(slots));
  const Span span = query_span(p, tile.sequence);
  if (tile.begin >= span.length) return;
  const std::int64_t first = span.begin + tile.begin, left = span.length - tile.begin;
  const std::int64_t index = tile.sequence * p.state_heads + head_of(head, p.heads, p.state_heads);
  Attend<R, kBlocks> attend(p, state, reinterpret_cast<float*>(shared));
  attend.run(query_projection(p, head), rows_of(p.q, p.dtype, span.batch, head, first, left, p.dim),
             index);
  const std::int64_t row = row_index(p, span.batch, head, first);
  if (to.along != nullptr) {
    attend.store_along(to.along + row,
                       rows_of(to.grad_out, p.dtype, span.batch, head, first, left, p.value_dim));
  } else {
    attend.store(to, rows_of(to.out, p.dtype, span.batch, head, first, left, p.value_dim), row);
  }
}

cudaError_t launch_rows(const FavorProblem& problem, const StateView& state,
                        const AttendTargets& to, const Device& device, cudaStream_t stream) {
  const Problem p = make_problem(problem);
  const auto with = [&]<int R, int kBlocks>() {
    const std::int64_t slots =
        tile_slots(p.query_offsets, p.sequences, p.query_length, kQueryTokens<R>);
    return launch(attend_queries<R, kBlocks>, {p.heads * slots, kThreads, kAttendBytes<R>}, stream,
                  p, state, to, static_cast<int>(slots));
  };
  if (p.value_dim > 2 * kTile) return with.template operator()<4, 4>();
  if (p.value_dim > kTile) return with.template operator()<4, 2>();
  // Blocks of 128 tokens where they are enough for two on every multiprocessor.
  const std::int64_t wide =
      p.heads * tile_slots(p.query_offsets, p.sequences, p.query_length, kQueryTokens<8>);
  if (wide < 2 * static_cast<std::int64_t>(device.multiprocessors)) {
    return with.template operator()<4, 1>();
  }
  return with.template operator()<8, 1>();
}

/// Four threads a row.
__global__ void __launch_bounds__(kThreads)
    dot_rows(const __grid_constant__ Problem p, TokenView out, TokenView grad_out, float* along) {
  const std::int64_t rows = p.batch * p.heads * p.query_length;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kTile + threadIdx.x / 4;
  const int quarter = 4 * static_cast<int>(threadIdx.x % 4);
  const bool there = row < rows;
  const std::int64_t token = there ? row % p.query_length : 0;
  const std::int64_t head = there ? row / p.query_length % p.heads : 0;
  const std::int64_t batch = there ? row / p.query_length / p.heads : 0;
  const Rows x = rows_of(out, p.dtype, batch, head, token, 1, p.value_dim);
  const Rows g = rows_of(grad_out, p.dtype, batch, head, token, 1, p.value_dim);
  const AllLive live;
  float sum = 0;
  const auto add = [&](const float4& a, const float4& b) {
    sum = fmaf(a.x, b.x, sum), sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum), sum = fmaf(a.w, b.w, sum);
  };
  if (x.vectors && g.vectors && p.dtype == Dtype::kFloat) {
    const VectorFetch<float, AllLive> fetch_x{x, live}, fetch_g{g, live};
    for (int c = quarter; c < p.value_dim; c += 16) add(fetch_x(0, c), fetch_g(0, c));
  } else {
    const ScalarFetch<AllLive> fetch_x{x, live}, fetch_g{g, live};
    for (int c = quarter; c < p.value_dim; c += 16) add(fetch_x(0, c), fetch_g(0, c));
  }
  sum += __shfl_xor_sync(0xffffffffU, sum, 1);
  sum += __shfl_xor_sync(0xffffffffU, sum, 2);
  if (there && quarter == 0) along[row] = sum;
}

}  // namespace

cudaError_t launch_attend(const FavorProblem& problem, const StateView& state,
                          const ForwardOutputs& outputs, const Device& device,
                          cudaStream_t stream) {
  const AttendTargets to{outputs.out, outputs.row_sum, outputs.row_log2_scale, {}, nullptr};
  return launch_rows(problem, state, to, device, stream);
}

cudaError_t launch_exact_along(const FavorProblem& problem, const StateView& state,
                               const TokenView& grad_out, float* along, const Device& device,
                               cudaStream_t stream) {
  const AttendTargets to{{}, nullptr, nullptr, grad_out, along};
  return launch_rows(problem, state, to, device, stream);
}

cudaError_t launch_along(const FavorProblem& problem, const TokenView& out,
                         const TokenView& grad_out, float* along, cudaStream_t stream) {
  const std::int64_t rows = problem.batch * problem.heads * problem.query_length;
  return launch(dot_rows, {divide_up(rows, kTile), kThreads}, stream, make_problem(problem), out,
                grad_out, along);
}

}  // namespace performer::kernels::cuda::portable
