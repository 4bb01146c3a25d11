#include "performer/kernels/cuda/portable/causal_rows.cuh"
#include "performer/kernels/cuda/portable/causal_state.cuh"
#include "performer/kernels/cuda/portable/launch.h"

// The gradient of the queries: a walk forwards with the states recomputed. With p relative to the
// same scales as the state and the chunk's keys,
//   slope_ri = g_i . S_r - along_i z_r + sum_{j <= i} phi_jr (g_i . v_j - along_i)
//   d log phi_r(q_i) = p_ri slope_ri / den_i,  dq_i = sqrt(scale) sum_r d log phi_r(q_i) w_r
// p_ri phi_jr <= den_i for j <= i: nothing overflows. The division comes after the difference, so
// that rows decided by one key have a gradient of exactly 0.
namespace performer::kernels::cuda::portable {
namespace {

struct QueryGradient {
  CausalShared& s;
  const CausalCall& call;
  const BackwardInputs& in;
  const BackwardOutputs& out;

  /// Rows of the chunk's part, of one query head.
  __device__ __forceinline__ void operator()(std::int64_t head) const {
    begin_head(s, call, head, in.out, in.grad_out);
    load_row_terms(s, call, in, head);
    project_queries(s, call, [&](int first, const float(&l)[4][4]) {
      store_tile(l, s.scratch.queries + first * kTile, kTile);
    });
    make_pairs();
    for (int slice = 0; slice < call.slices; ++slice) differentiate(slice);
    pull_back(head);
  }

 private:
  /// Tile 3: g_i . v_j - along_i as [j][i], 0 for j > i. Tile 2 keeps g as [column][i] where there
  /// is one block of values.
  __device__ __forceinline__ void make_pairs() const {
    float acc[4][4];
    clear(acc);
    for (int block = 0; block < call.value_blocks; ++block) {
      __syncthreads();
      load_columns(s.tile(2), s.gradient, block * kTile);
      load_columns(s.tile(0), s.values, block * kTile, Live{s.part.use});
      __syncthreads();
      product(acc, s.tile(2), s.tile(0));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float along = s.along[row0() + i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        acc[i][j] = col0() + j <= row0() + i ? acc[i][j] - along : 0.0F;
      }
    }
    store_acc_transposed(acc, s.tile(3));
  }

  /// In the scratch, the queries' log2 features of a slice become the gradient for them.
  __device__ __forceinline__ void differentiate(int slice) const {
    const Problem& p = call.problem;
    const int first = slice * kTile, stride = call.values_padded();
    float reference[4], factor[4], slope[4][4], x[4][4];
    clear(slope);
    for (int block = 0; block < call.value_blocks; ++block) {
      load_tile(x, s.state.sum + static_cast<std::int64_t>(first) * stride + block * kTile, stride);
      load_rows_of(reference, s.scratch.reference, first);
      reference_factors(factor, s, reference, first);
      multiply_rows(x, factor);
      __syncthreads();
      store_acc_transposed(x, s.tile(0));
      if (call.value_blocks > 1) load_columns(s.tile(2), s.gradient, block * kTile);
      if (block == 0) {
        load_tile(x, s.scratch.keys + slice * kTileArea, kTile);
        make_key_features(x, p, first, reference, column_bits(s.part.use));
        store_acc_transposed(x, s.tile(1));
      }
      __syncthreads();
      product(slope, s.tile(0), s.tile(2));
    }
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
  return launch(query_gradients, call.blocks, kCausalBytes, stream, call, in, out);
}

}  // namespace performer::kernels::cuda::portable
