#pragma once

#include "performer/kernels/cuda/portable/causal/row_scales.cuh"

// A chunk in the walk backwards, as the gradients of its keys need it: the rows of its query heads
// and the keys' features relative to scales of the rows after it. With several query heads of a
// state head, what a head's rows are is made anew where it is needed; with one it stays.
namespace performer::kernels::cuda::portable {

struct KeyChunk {
  CausalShared& s;
  const CausalCall& call;
  const BackwardInputs& in;
  const BackwardOutputs& out;

  __device__ __forceinline__ bool single() const { return call.group == 1; }
  __device__ __forceinline__ std::int64_t head_at(int g) const {
    return s.segment.head * call.group + g;
  }
  __device__ __forceinline__ Tokens enter_head(int g) const {
    begin_head(s, call, head_at(g), in.grad_out, s.gradient);
    load_row_scales(s, call, in, head_at(g));
    load_along(s, call, head_at(g));
    return present_rows(s);
  }

  /// Into the scratch: the log2 features l of the rows' queries; of several heads the largest
  /// l - shift.
  __device__ __forceinline__ void project_rows() const {
    Tokens rows = 0;
    for (int g = 0; g < call.group; ++g) {
      rows |= enter_head(g);
      project_queries(s, call, [&](int first, float(&l)[4][4]) {
        float* to = s.scratch.queries + first * kTile;
        if (!single()) {
          float before[4][4];
          subtract_shifts(l);
          if (g > 0) {
            load_tile(before, to, kTile);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
              for (int j = 0; j < 4; ++j) l[i][j] = fmaxf(l[i][j], before[i][j]);
            }
          }
        }
        store_tile(l, to, kTile);
      });
    }
    if (threadIdx.x == 0) s.rows = rows;
  }

  __device__ __forceinline__ void subtract_shifts(float (&l)[4][4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float shift = s.shift[col0() + j];
#pragma unroll
      for (int i = 0; i < 4; ++i) l[i][j] -= shift;
    }
  }

  /// x[feature][row] = p of the head at hand, relative to `scale`. Several heads take tiles 0 and 1
  /// for it, with barriers.
  __device__ __forceinline__ void row_weights(float (&x)[4][4], int g, int slice,
                                              const float (&scale)[4]) const {
    const Problem& p = call.problem;
    if (single()) {
      load_tile(x, s.scratch.queries + slice * kTileArea, kTile);
    } else {
      project_slice(x, s, p, {s.query_projection, s.queries, slice * kTile, false}, AllLive{});
    }
    make_row_weights(x, s, p, slice * kTile, scale, column_bits(s.part.rows));
  }

  /// x[feature][key] = phi.
  __device__ __forceinline__ void key_features(float (&x)[4][4], int slice) const {
    float scale[4];
    load_rows_of(scale, s.scratch.reference, slice * kTile);
#pragma unroll
    for (int i = 0; i < 4; ++i) scale[i] = -scale[i];
    load_tile(x, s.scratch.keys + slice * kTileArea, kTile);
    make_key_features(x, call.problem, slice * kTile, scale, column_bits(s.part.use));
  }

  /// x[feature][column] = dS 2^(e - reference).
  __device__ __forceinline__ void state_tile(float (&x)[4][4], int slice, int block) const {
    const int first = slice * kTile, stride = call.values_padded();
    float reference[4], factor[4];
    load_rows_of(reference, s.scratch.reference, first);
    reference_factors(factor, s, reference, first);
    load_tile(x, s.state.sum + static_cast<std::int64_t>(first) * stride + block * kTile, stride);
    multiply_rows(x, factor);
  }

  /// s.out becomes the chunk's keys of a result, for store_keys after the next barrier.
  __device__ __forceinline__ void write_to(const TokenView& result, std::int64_t width) const {
    const Problem& p = call.problem;
    if (threadIdx.x != 0) return;
    s.out = chunk_rows(result, p, s.segment, key_head(p, s.segment), s.begin, width);
  }

  /// Rows of keys of the part into s.out; 0 where masked.
  __device__ __forceinline__ void store_keys(int column, float (&acc)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0() + i;
      if (row < s.part.begin || row >= s.part.end) continue;
      const bool present = has(s.part.use, row);
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[i][j] = present ? acc[i][j] : 0.0F;
      store_row4(s.out, row, column + col0(), acc[i]);
    }
  }

  /// Tile 3: g_i . v_j - along_i as [row][key], 0 for j > i. With one block of values, tile 1 has v
  /// as [column][key] afterwards.
  __device__ __forceinline__ void make_pairs() const {
    float acc[4][4];
    clear(acc);
    for (int block = 0; block < call.value_blocks; ++block) {
      __syncthreads();
      load_columns(s.tile(2), s.gradient, block * kTile, Live{s.part.rows});
      load_columns(s.tile(1), s.values, block * kTile, Live{s.part.use});
      __syncthreads();
      product(acc, s.tile(2), s.tile(1));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float along = s.along[row0() + i];
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[i][j] -= along;
    }
    clear_later(acc);
    store_acc(acc, s.tile(3));
  }
};

}  // namespace performer::kernels::cuda::portable
