#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/portable/causal/rows.cuh"
#include "performer/kernels/cuda/portable/causal/state.cuh"

// The gradient of the queries: a walk forwards with the states recomputed. With p relative to the
// same scales as the state and the chunk's keys,
//   slope_ri = g_i . S_r - along_i z_r + sum_{j <= i} phi_jr (g_i . v_j - along_i)
//   d log phi_r(q_i) = p_ri slope_ri / den_i,  dq_i = sqrt(scale) sum_r d log phi_r(q_i) w_r
// p_ri phi_jr <= den_i for j <= i: nothing overflows. The division comes after the difference, so
// that rows decided by one key have a gradient of nearly 0. den and along are formed first, from
// the same weights:
//   weights_ij = sum_r p_ri phi_jr,  den_i = sum_r p_ri z_r + sum_{j <= i} weights_ij
//   along_i = (sum_r p_ri g_i . S_r + sum_{j <= i} weights_ij g_i . v_j) / den_i
namespace performer::kernels::cuda::portable {
namespace {

struct QueryGradient {
  CausalShared& s;
  const CausalCall& call;
  const BackwardInputs& in;
  const BackwardOutputs& out;

  /// Rows of the chunk's part, of one query head.
  __device__ __forceinline__ void operator()(std::int64_t head) const {
    begin_head(s, call, head, in.grad_out, s.gradient);
    load_row_scales(s, call, in, head);
    project_queries(s, call, [&](int first, const float(&l)[4][4]) {
      store_tile(l, s.scratch.queries + first * kTile, kTile);
    });
    float weights[4][4];
    attend_state(weights);
    make_pairs(weights, head);
    for (int slice = 0; slice < call.slices; ++slice) differentiate(slice);
    pull_back(head);
  }

 private:
  /// weights[i][j] of the chunk's rows and keys, j > i too. s.total, s.along: the state's part of
  /// den and of den along.
  __device__ __forceinline__ void attend_state(float (&weights)[4][4]) const {
    const Problem& p = call.problem;
    float along[1][4] = {{0, 0, 0, 0}}, total[1][4] = {{0, 0, 0, 0}};
    clear(weights);
    for (int slice = 0; slice < call.slices; ++slice) {
      const int first = slice * kTile;
      float reference[4], factor[4], z[4], slope[4][4], x[4][4];
      state_slopes(slope, slice, slice > 0);
      load_rows_of(z, s.state.normalizer, first);
      load_rows_of(reference, s.scratch.reference, first);
      reference_factors(factor, s, reference, first);
      load_tile(x, s.scratch.queries + slice * kTileArea, kTile);
      make_query_features(x, p, first, reference, s.shift);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float own = z[i] * factor[i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          along[0][j] = fmaf(x[i][j], slope[i][j], along[0][j]);
          total[0][j] = fmaf(x[i][j], own, total[0][j]);
        }
      }
      store_acc(x, s.tile(1));
      load_tile(x, s.scratch.keys + slice * kTileArea, kTile);
      make_key_features(x, p, first, reference, column_bits(s.part.use));
      store_acc(x, s.tile(3));
      __syncthreads();
      product(weights, s.tile(1), s.tile(3));
    }
    sum_columns(along, s.along);
    sum_columns(total, s.total);
  }

  /// Starts with a barrier.
  __device__ __forceinline__ void sum_columns(const float (&x)[1][4], float* to) const {
    __syncthreads();
    column_sum_parts(x, s.parts);
    __syncthreads();
    if (threadIdx.x < kTile) to[threadIdx.x] = column_sum(s.parts, static_cast<int>(threadIdx.x));
  }

  /// slope[feature][row] = g . S, the state relative to the chunk's scales. Tiles 0 and 2: a single
  /// block of g stays, `resident` where it is there already. Starts with a barrier.
  __device__ __forceinline__ void state_slopes(float (&slope)[4][4], int slice,
                                               bool resident) const {
    const int first = slice * kTile, stride = call.values_padded();
    float reference[4], factor[4], x[4][4];
    clear(slope);
    for (int block = 0; block < call.value_blocks; ++block) {
      load_tile(x, s.state.sum + static_cast<std::int64_t>(first) * stride + block * kTile, stride);
      load_rows_of(reference, s.scratch.reference, first);
      reference_factors(factor, s, reference, first);
      multiply_rows(x, factor);
      __syncthreads();
      store_acc_transposed(x, s.tile(0));
      if (call.value_blocks > 1 || !resident) {
        load_columns(s.tile(2), s.gradient, block * kTile);
      }
      __syncthreads();
      product(slope, s.tile(0), s.tile(2));
    }
  }

  /// Tile 3: g_i . v_j - along_i as [j][i], 0 for j > i; s.along and s.inverse, after attend_state.
  __device__ __forceinline__ void make_pairs(const float (&weights)[4][4],
                                             std::int64_t head) const {
    float acc[4][4];
    clear(acc);
    for (int block = 0; block < call.value_blocks; ++block) {
      __syncthreads();
      if (call.value_blocks > 1) load_columns(s.tile(2), s.gradient, block * kTile);
      load_columns(s.tile(0), s.values, block * kTile, Live{s.part.use});
      __syncthreads();
      product(acc, s.tile(2), s.tile(0));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0() + i;
      float own_total = 0, own_along = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (col0() + j > row) continue;
        own_total += weights[i][j];
        own_along = fmaf(weights[i][j], acc[i][j], own_along);
      }
      const float total = s.total[row] + row_lanes_sum(own_total);
      const float sum = s.along[row] + row_lanes_sum(own_along);
      const bool reached = s.inverse[row] != 0, present = reached && total != 0;
      const float inverse = present ? 1.0F / total : 0.0F;
      const float along = present ? sum / total : 0.0F;
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[i][j] = col0() + j <= row ? acc[i][j] - along : 0.0F;
      __syncwarp();  // the row is this warp's alone
      if (col0() != 0) continue;
      s.inverse[row] = inverse;
      s.along[row] = along;
      if (reached && row >= s.part.begin && row < s.part.end) {
        AlongPlace(s, call, head, row).store(along);
      }
    }
    store_acc_transposed(acc, s.tile(3));
  }

  /// In the scratch, the queries' log2 features of a slice become the gradient for them.
  __device__ __forceinline__ void differentiate(int slice) const {
    const Problem& p = call.problem;
    const int first = slice * kTile;
    float reference[4], factor[4], slope[4][4], x[4][4];
    state_slopes(slope, slice, true);
    load_rows_of(reference, s.scratch.reference, first);
    load_tile(x, s.scratch.keys + slice * kTileArea, kTile);
    make_key_features(x, p, first, reference, column_bits(s.part.use));
    store_acc_transposed(x, s.tile(1));
    __syncthreads();
    product(slope, s.tile(1), s.tile(3));

    float z[4];
    load_rows_of(z, s.state.normalizer, first);
    load_rows_of(reference, s.scratch.reference, first);
    reference_factors(factor, s, reference, first);
    load_tile(x, s.scratch.queries + slice * kTileArea, kTile);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float along = s.along[col0() + j], inverse = s.inverse[col0() + j];
      const float shift = s.shift[col0() + j];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float difference = fmaf(-along, z[i] * factor[i], slope[i][j]);
        const float weight =
            p.exponential ? exp2_fast(x[i][j] + (reference[i] - shift)) : relu_slope(x[i][j]);
        x[i][j] = difference * inverse * weight;
      }
    }
    store_tile(x, s.scratch.queries + slice * kTileArea, kTile);
  }

  __device__ __forceinline__ void pull_back(std::int64_t head) const {
    const Problem& p = call.problem;
    __syncthreads();
    if (threadIdx.x == 0) s.out = chunk_rows(out.q, p, s.segment, head, s.begin, p.dim);
    for (int column = 0; column < p.dim; column += kTile) {
      float acc[4][4];
      clear(acc);
      for (int slice = 0; slice < call.slices; ++slice) {
        float x[4][4];
        load_tile(x, s.scratch.queries + slice * kTileArea, kTile);
        __syncthreads();
        store_acc(x, s.tile(0));
        load_projection_rows(s.tile(1), s.query_projection, slice * kTile, column);
        __syncthreads();
        product(acc, s.tile(0), s.tile(1));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row0() + i;
        if (row < s.part.begin || row >= s.part.end) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] *= p.pull_back;
        store_row4(s.out, row, column + col0(), acc[i]);
      }
    }
  }
};

__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    query_gradients(const __grid_constant__ CausalCall call,
                    const __grid_constant__ BackwardInputs in,
                    const __grid_constant__ BackwardOutputs out) {
  CausalShared& s = causal_shared();
  const QueryGradient gradient{s, call, in, out};
  for (std::int64_t work = blockIdx.x; work < call.works(); work += gridDim.x) {
    begin_segment(s, call, work);
    if (call.segments == 1) {
      load_boundary(call, BoundaryState::initial(call.problem), s.segment.item, s.state);
    }
    for (std::int64_t begin = s.segment.begin; begin < s.segment.end; begin += kTile) {
      project_keys(s, call, begin);
      for (int at = 0; at < s.count; at = s.part.end) {
        choose_key_scales(s, call, at);
        for (int g = 0; g < call.group; ++g) gradient(s.segment.head * call.group + g);
        if (s.part.end < s.count || begin + kTile < s.segment.end) add_keys(s, call);
      }
    }
  }
}

}  // namespace

cudaError_t launch_query_gradients(const CausalCall& call, const BackwardInputs& in,
                                   const BackwardOutputs& out, cudaStream_t stream) {
  return launch(query_gradients, {call.blocks, kThreads, kCausalBytes}, stream, call, in, out);
}

}  // namespace performer::kernels::cuda::portable
