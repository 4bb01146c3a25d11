#pragma once

#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/portable/projection.cuh"
#include "performer/kernels/cuda/portable/rows.cuh"
#include "performer/kernels/cuda/portable/state.h"

// Sums over tokens of features times rows, for each (sequence, state head), split and slice of
// features. Of keys, with scales that are found on the way, and of queries, with scales given:
//   S_r  = sum_j phi_r(k_j) v_j       z_r  = sum_j phi_r(k_j)
//   dS_r = sum_i p_ir g_i / den_i     dz_r = -sum_i p_ir along_i / den_i
// A block keeps its slice of S in registers while tokens pass by in tiles of 64. Features are made
// as rows [feature, token], so that a feature's scale, sum and S belong to the same lanes.
namespace performer::kernels::cuda::portable {

/// What the sums over queries read beside the problem.
struct QuerySums {
  TokenView grad_out;
  const float* row_sum;
  const std::int32_t* row_log2_scale;
  const std::int32_t* log2_scale;  // of the final state
  const float* along;              // [B, H, Lq] g . out
};

/// R = 4 or 8 rows a thread: slices of 64 or 128 features. Blocks: 64 columns of v each.
template <int R>
inline constexpr int kSliceFeatures = kTile*(R / 4);
template <int R>
inline constexpr int kSumsBytes = (2 * (R / 4) + 1) * kTileBytes + 7 * kTile * 4;

template <int R, int kBlocks, bool kQueries>
class FeatureSums {
 public:
  __device__ FeatureSums(const Problem& p, const QuerySums& in, float* shared, std::int64_t index,
                         int first)
      : p_(p),
        in_(in),
        w_(shared),
        phi_(w_ + (R / 4) * kTileFloats),
        x_(phi_),  // x is read before features are written
        v_(phi_ + (R / 4) * kTileFloats),
        term_(v_ + kTileFloats),
        inverse_(term_ + kTile),
        along_(inverse_ + kTile),
        bias_(along_ + kTile),
        given_(bias_ + kSliceFeatures<R>),
        sequence_(static_cast<int>(index / p.state_heads)),
        head_(static_cast<int>(index % p.state_heads)),
        first_(first) {
    if (kQueries && threadIdx.x < kSliceFeatures<R>) {
      const int r = first + static_cast<int>(threadIdx.x);
      given_[threadIdx.x] =
          r < p.features ? static_cast<float>(in.log2_scale[index * p.features + r]) : kEmptyScale;
    }
#pragma unroll
    for (int i = 0; i < R; ++i) scale_[i] = kEmptyScale, z_[i] = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) clear(s_[b]);
  }

  __device__ void run(int split, int splits) {
    const auto span_of = [&](int n) { return kQueries ? query_span(p_, n) : key_span(p_, n); };
    const int group = kQueries ? static_cast<int>(p_.heads / p_.state_heads) : 1;
    const int tiles = static_cast<int>((span_of(sequence_).length + kTile - 1) / kTile);
    const std::int64_t all = static_cast<std::int64_t>(group) * tiles;
    int left = static_cast<int>(all * (split + 1) / splits - all * split / splits);
    // Tile `tile` of query head `member` of the group (of the keys' only one).
    int member = 0, tile = static_cast<int>(all * split / splits);
    while (left > 0 && tile >= tiles) tile -= tiles, ++member;
    int packed = -1;  // the head whose W is in shared memory
    for (; left > 0; --left, ++tile) {
      if (tile == tiles) tile = 0, ++member;
      const int head = head_ * group + member;
      const std::int64_t begin = static_cast<std::int64_t>(tile) * kTile;
      const Projection w = kQueries ? query_projection(p_, head) : key_projection(p_, head);
      __syncthreads();
      if (head != packed) {
        if (p_.dim <= kTile) load_slice(w, 0);
        if (threadIdx.x < kSliceFeatures<R>) {
          bias_[threadIdx.x] = w.log2_bias(first_ + static_cast<int>(threadIdx.x));
        }
        packed = head;
      }
      const Span span = span_of(opaque(sequence_));  // not kept in registers
      add_tile(w, span.batch, head, span.begin + begin, span.length - begin);
    }
  }

  __device__ void store(const Partials& to, std::int64_t state) const {
    const Rows rows = state_rows(p_, to.kv, state, first_);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) store_tokens(rows, b * kTile, s_[b]);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float z = row_lanes_sum(z_[i]);
      const int r = row_of(i);
      if (col0() != 0 || r >= rows.count) continue;
      const std::int64_t at = state * p_.features + first_ + r;
      to.normalizer[at] = z;
      if (!kQueries) to.log2_scale[at] = static_cast<std::int32_t>(scale_[i]);
    }
  }

 private:
  __device__ void load_slice(const Projection& w, int column) {
#pragma unroll
    for (int n = 0; n < R / 4; ++n) {
      load_projection(w_ + n * kTileFloats, w, first_ + n * kTile, column);
    }
  }

  /// The tokens from `first` on, 64 or the `left` that are there.
  __device__ void add_tile(const Projection& w, std::int64_t batch, std::int64_t head,
                           std::int64_t first, std::int64_t left) {
    if constexpr (kQueries) {
      const Rows x = rows_of(p_.q, p_.dtype, batch, head, first, left, p_.dim);
      const Rows v = rows_of(in_.grad_out, p_.dtype, batch, head, first, left, p_.value_dim);
      if (threadIdx.x < kTile) load_row_terms(batch, head, first, x.count);
      float u[R][4];
      project(w, x, v, AllLive{}, u);
      __syncthreads();
      query_features(u);
      add_products(u, v, AllLive{});
    } else {
      const std::int64_t key_head = head_of(head, p_.state_heads, p_.key_heads);
      const KeyTerms keys(p_, head, batch, first);
      const Rows x = rows_of(p_.k, p_.dtype, batch, key_head, first, left, p_.dim);
      const Rows v = rows_of(p_.v, p_.dtype, batch, key_head, first, left, p_.value_dim);
      float u[R][4];
      const bool live = project(w, x, v, keys, u);
      key_features(u, __syncthreads_or(static_cast<int>(live)) != 0);
      add_products(u, v, keys);
    }
  }

  /// u = W x^T [feature, token], and the first block of v on its way. Keys: their terms too;
  /// returns whether the thread's own key is there.
  template <class Live>
  __device__ bool project(const Projection& w, const Rows& x, const Rows& v, const Live& live,
                          float (&u)[R][4]) {
    clear(u);
    float square = 0;
    bool present = true;
    load_rows(v_, v, 0, live);
    for (int column = 0; column < w.d; column += kTile) {
      if (column > 0) __syncthreads();
      load_columns(x_, x, column, live);
      if (w.d > kTile) load_slice(w, column);
      __syncthreads();
      if constexpr (!kQueries) {
        if (p_.half_norm != 0) square = add_squares(x_, square);
        if (column + kTile >= w.d) present = store_terms(term_, live, x.count, square);
      }
      gemm(u, w_, x_, depth_of(w.d, column));
    }
    return present;
  }

  __device__ void load_row_terms(std::int64_t batch, std::int64_t head, std::int64_t first,
                                 int count) {
    const int t = static_cast<int>(threadIdx.x);
    float shift = p_.exponential ? infinity() : 0, inverse = 0, along = 0;
    if (t < count) {
      const std::int64_t at = row_index(p_, batch, head, first + t);
      const RowInverse row(p_.exponential, in_.row_sum[at], in_.row_log2_scale[at]);
      shift = row.shift, inverse = row.inverse;
      along = inverse == 0 ? 0 : in_.along[at];
    }
    term_[t] = shift, inverse_[t] = inverse, along_[t] = along;
  }

  /// any: one of the tile's keys is there.
  __device__ void key_features(float (&u)[R][4], bool any) {
    float terms[4];
    load_four(terms, term_ + col0());
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (p_.exponential) {
        const float bias = bias_[row_of(i)];
#pragma unroll
        for (int j = 0; j < 4; ++j) u[i][j] += bias + terms[j];
        const float top = row_lanes_max(fmaxf(fmaxf(u[i][0], u[i][1]), fmaxf(u[i][2], u[i][3])));
        const float needed = any ? round_up_log2(top) : kEmptyScale;
        if (needed > scale_[i]) lift(i, needed);
#pragma unroll
        for (int j = 0; j < 4; ++j) u[i][j] = exp2_fast(u[i][j] - scale_[i]);
      } else {
        if (any) scale_[i] = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) u[i][j] = terms[j] == 0 ? relu(u[i][j]) + p_.eps_value : 0;
      }
      z_[i] += (u[i][0] + u[i][1]) + (u[i][2] + u[i][3]);
    }
  }

  /// p / den.
  __device__ void query_features(float (&u)[R][4]) {
    float shifts[4], inverses[4], alongs[4];
    load_four(shifts, term_ + col0());
    load_four(inverses, inverse_ + col0());
    load_four(alongs, along_ + col0());
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float bias = bias_[row_of(i)], scale = given_[row_of(i)];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float value = p_.exponential ? exp2_fast(u[i][j] + bias + (scale - shifts[j]))
                                           : relu(u[i][j]) + p_.eps_value;
        u[i][j] = value * inverses[j];
        z_[i] = fmaf(-alongs[j], u[i][j], z_[i]);
      }
    }
  }

  __device__ void lift(int i, float to) {
    const float factor = exp2_integer(scale_[i] - to);
    scale_[i] = to;
    z_[i] *= factor;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s_[b][i][j] *= factor;
    }
  }

  /// S += phi v.
  template <class Live>
  __device__ void add_products(const float (&u)[R][4], const Rows& v, const Live& live) {
    store_acc_transposed(u, phi_);
    __syncthreads();
    const int tokens = v.count < kTile ? v.count : kTile;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (b > 0) {
        __syncthreads();
        load_rows(v_, v, b * kTile, live);
        __syncthreads();
      }
      gemm(s_[b], phi_, v_, tokens);
    }
  }

  const Problem& p_;
  const QuerySums& in_;
  float *w_, *phi_, *x_, *v_, *term_, *inverse_, *along_, *bias_;
  float* given_;  // scales of the slice's features (queries)
  int sequence_, head_, first_;
  float s_[kBlocks][R][4], z_[R], scale_[R];
};

/// Blocks: ((index, split), slice), the slices of a split next to each other.
template <int R, int kBlocks, bool kQueries>
__global__ void __launch_bounds__(kThreads, kBlocks == 4 ? 1 : 2)
    sum_features(const __grid_constant__ Problem p, const __grid_constant__ QuerySums in,
                 int splits, int slices, Partials out) {
  extern __shared__ float4 shared[];
  const std::int64_t state = blockIdx.x / static_cast<unsigned>(slices);
  const int slice = static_cast<int>(blockIdx.x % static_cast<unsigned>(slices));
  FeatureSums<R, kBlocks, kQueries> sums(p, in, reinterpret_cast<float*>(shared), state / splits,
                                         slice * kSliceFeatures<R>);
  sums.run(static_cast<int>(state % splits), splits);
  sums.store(out, state);
}

/// Launches the pass that suits the sizes.
template <bool kQueries>
cudaError_t launch_feature_sums(const Problem& p, const QuerySums& in, int splits,
                                const Partials& out, cudaStream_t stream) {
  const auto with = [&]<int R, int kBlocks>() {
    const std::int64_t slices = divide_up(p.features, kSliceFeatures<R>);
    return launch(sum_features<R, kBlocks, kQueries>,
                  {p.sequences * p.state_heads * splits * slices, kThreads, kSumsBytes<R>}, stream,
                  p, in, splits, static_cast<int>(slices), out);
  };
  if (p.value_dim > 2 * kTile) return with.template operator()<4, 4>();
  if (p.value_dim > kTile) return with.template operator()<4, 2>();
  if (p.features <= kTile) return with.template operator()<4, 1>();
  return with.template operator()<8, 1>();
}

}  // namespace performer::kernels::cuda::portable
