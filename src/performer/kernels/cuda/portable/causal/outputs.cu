#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/portable/causal/chunk.cuh"
#include "performer/kernels/cuda/portable/causal/state.cuh"
#include "performer/kernels/cuda/portable/rows.cuh"

// Causal forward walk. A chunk's queries meet the state before it and its keys up to themselves:
//   p_ir = 2^(lq_ir + ref_r - shift_i)      weights_ij = sum_r p_ir phi_jr, j <= i
//   out_i = (p_i S + sum_j weights_ij v_j) / (p_i z + sum_j weights_ij)
// No bit of a row depends on a later token: scales do not see it, its weight is selected away, and
// values that are not finite are spread to the rows that see them instead of multiplied.
namespace performer::kernels::cuda::portable {
namespace {

/// Values [key][column] that are not finite leave the tile: spread[row][column] is their sum up to
/// the row. Returns whether there were any; barriers on both sides.
__device__ __forceinline__ bool spread_nonfinite(float* values, float* spread) {
  const int column = static_cast<int>(threadIdx.x) % kTile;
  const int first = static_cast<int>(threadIdx.x) / kTile * 16;
  bool found = false;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    found = found || !(values[(first + j) * kStride + column] * 0.0F == 0.0F);
  }
  if (__syncthreads_or(found ? 1 : 0) == 0) return false;
  if (threadIdx.x < kTile) {
    float sum = 0;
    for (int j = 0; j < kTile; ++j) {
      float& x = values[j * kStride + column];
      if (!(x * 0.0F == 0.0F)) {
        sum += x;
        x = 0;
      }
      spread[j * kStride + column] = sum;
    }
  }
  __syncthreads();
  return true;
}

struct Attend {
  CausalShared& s;
  const CausalCall& call;
  const ForwardOutputs& outputs;

  /// Rows of the chunk's part, of one query head. projected: its log2 features lie in the scratch.
  __device__ __forceinline__ void operator()(std::int64_t head, bool projected) const {
    const Problem& p = call.problem;
    begin_head(s, call, head, outputs.out, s.out);
    choose_shifts(head, projected);

    float scores[4][4];
    clear(scores);
    for (int block = 0; block < call.value_blocks; ++block) {
      float acc[4][4];
      clear(acc);
      attend_state(acc, scores, block);
      if (block == 0) {
        float sum[4];
        clear_later(scores);
        row_sum(scores, sum);
        store_acc_transposed(scores, s.tile(3));
        if (col0() == 0) {
#pragma unroll
          for (int i = 0; i < 4; ++i) s.total[row0() + i] = sum[i];
        }
      }
      __syncthreads();
      load_rows(s.tile(1), s.values, block * kTile, Live{s.part.use});
      if (block == 0 && threadIdx.x < kTile) {
        const float* state_sum = s.parts + threadIdx.x;
        s.total[threadIdx.x] +=
            (state_sum[0] + state_sum[kTile]) + (state_sum[2 * kTile] + state_sum[3 * kTile]);
      }
      __syncthreads();
      const bool spread = spread_nonfinite(s.tile(1), s.tile(2));
      product(acc, s.tile(3), s.tile(1));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row0() + i;
        if (row < s.part.begin || row >= s.part.end) continue;
        const bool reached = s.part.reached || (s.part.use & tokens_below(row + 1)) != 0;
        if (spread) add_spread(acc[i], row);
        divide(acc[i], s.total[row], reached);
        store_row4(s.out, row, block * kTile + col0(), acc[i]);
        if (block == 0 && col0() == 0 && outputs.row_sum != nullptr) {
          const std::int64_t at =
              row_index(p, s.segment.span.batch, head, s.segment.span.begin + s.begin + row);
          outputs.row_sum[at] = s.total[row];
          outputs.row_log2_scale[at] = reached ? static_cast<std::int32_t>(s.shift[row]) : 0;
        }
      }
    }
  }

 private:
  /// Log2 features of the queries into the scratch, and every row's shift.
  __device__ __forceinline__ void choose_shifts(std::int64_t head, bool projected) const {
    float top[1][4] = {{-infinity(), -infinity(), -infinity(), -infinity()}};
    const auto see = [&](int first, const float(&l)[4][4]) {
      float reference[4];
      load_rows_of(reference, s.scratch.reference, first);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) top[0][j] = fmaxf(top[0][j], l[i][j] + reference[i]);
      }
    };
    if (projected) {
      for (int slice = 0; slice < call.slices; ++slice) {
        float l[4][4];
        load_tile(l, s.scratch.queries + slice * kTileArea, kTile);
        see(slice * kTile, l);
      }
    } else {
      project_queries(s, call, [&](int first, const float(&l)[4][4]) {
        store_tile(l, s.scratch.queries + first * kTile, kTile);
        see(first, l);
      });
    }
    __syncthreads();
    column_max_parts(top, s.parts);
    __syncthreads();
    if (threadIdx.x < kTile) {
      const float most = column_max(s.parts, static_cast<int>(threadIdx.x));
      s.shift[threadIdx.x] = call.problem.exponential ? round_up_log2(most) : 0.0F;
    }
    __syncthreads();
  }

  /// acc += p S of one block of values. For the first block also scores += p phi, and the rows'
  /// p z, in four parts, into s.parts.
  __device__ __forceinline__ void attend_state(float (&acc)[4][4], float (&scores)[4][4],
                                               int block) const {
    const Problem& p = call.problem;
    const int stride = call.values_padded();
    const int column = static_cast<int>(threadIdx.x) % kTile;
    const int quarter = static_cast<int>(threadIdx.x) / kTile;
    float sum = 0;
    for (int slice = 0; slice < call.slices; ++slice) {
      const int first = slice * kTile;
      float reference[4], factor[4], x[4][4];
      load_rows_of(reference, s.scratch.reference, first);
      reference_factors(factor, s, reference, first);
      __syncthreads();
      load_tile(x, s.scratch.queries + slice * kTileArea, kTile);
      make_query_features(x, p, first, reference, s.shift);
      store_acc(x, s.tile(0));
      load_tile(x, s.state.sum + static_cast<std::int64_t>(first) * stride + block * kTile, stride);
      multiply_rows(x, factor);
      store_acc(x, s.tile(2));
      if (block == 0) {
        load_tile(x, s.scratch.keys + slice * kTileArea, kTile);
        make_key_features(x, p, first, reference, column_bits(s.part.use));
        store_acc(x, s.tile(1));
        if (col0() == 0) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s.normalizer[row0() + i] = s.state.normalizer[first + row0() + i] * factor[i];
          }
        }
      }
      __syncthreads();
      product(acc, s.tile(0), s.tile(2));
      if (block > 0) continue;
      product(scores, s.tile(0), s.tile(1));
#pragma unroll
      for (int r = 0; r < 16; ++r) {
        sum = fmaf(s.tile(0)[(16 * quarter + r) * kStride + column], s.normalizer[16 * quarter + r],
                   sum);
      }
    }
    if (block == 0) s.parts[quarter * kTile + column] = sum;
  }

  __device__ __forceinline__ void add_spread(float (&row)[4], int at) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float x = s.tile(2)[at * kStride + col0() + j];
      if (x != 0) row[j] += x;
    }
  }

  /// A denominator of exactly 0 gives 0. Where exponential features sum to 0 after a key, they left
  /// the range of the scales.
  __device__ __forceinline__ void divide(float (&row)[4], float sum, bool reached) const {
    const float lost = reached && call.problem.exponential ? quiet_nan() : 0.0F;
#pragma unroll
    for (int j = 0; j < 4; ++j) row[j] = sum == 0 ? lost : row[j] / sum;
  }
};

__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    causal_outputs(const __grid_constant__ CausalCall call,
                   const __grid_constant__ ForwardOutputs outputs) {
  CausalShared& s = causal_shared();
  const Problem& p = call.problem;
  const Attend attend{s, call, outputs};
  for (std::int64_t work = blockIdx.x; work < call.works(); work += gridDim.x) {
    begin_segment(s, call, work);
    const bool last = s.segment.index + 1 == call.segments;
    if (call.segments == 1) {
      load_boundary(call, BoundaryState::initial(p), s.segment.item, s.state);
    }
    for (std::int64_t begin = s.segment.begin; begin < s.segment.end; begin += kTile) {
      project_keys(s, call, begin);
      for (int at = 0; at < s.count; at = s.part.end) {
        choose_key_scales(s, call, at);
        for (int g = 0; g < call.group; ++g) {
          attend(s.segment.head * call.group + g, call.group == 1 && at > 0);
        }
        const bool more = s.part.end < s.count || begin + kTile < s.segment.end;
        if (last || more) add_keys(s, call);
      }
    }
    __syncthreads();
    if (last) store_final(call, s.state, s.segment.item, outputs.state);
  }
}

}  // namespace

cudaError_t launch_causal_outputs(const CausalCall& call, const ForwardOutputs& out,
                                  cudaStream_t stream) {
  return launch(causal_outputs, {call.blocks, kThreads, kCausalBytes}, stream, call, out);
}

}  // namespace performer::kernels::cuda::portable
