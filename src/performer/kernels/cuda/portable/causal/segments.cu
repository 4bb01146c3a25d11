#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/portable/causal/rows.cuh"
#include "performer/kernels/cuda/portable/causal/state.cuh"
#include "performer/kernels/cuda/portable/state.cuh"

// States before every segment of a sequence: sums over segments, then a scan. Backwards the same of
// the rows' gradients, dS_r = sum_i p_ir g_i / den_i and dz_r = -sum_i p_ir along_i / den_i.
namespace performer::kernels::cuda::portable {
namespace {

/// One slice of features of the sum over one segment, S in registers.
struct SliceSum {
  float sum[4][4], normalizer[4], scale[4];

  __device__ __forceinline__ explicit SliceSum(float empty) {
    clear(sum);
#pragma unroll
    for (int i = 0; i < 4; ++i) normalizer[i] = 0, scale[i] = empty;
  }

  /// Lifts the scales to the largest of the columns `bits` of l: log2 magnitudes. `any`: one of the
  /// 64 columns is there.
  __device__ __forceinline__ void lift(const float (&l)[4][4], unsigned bits, bool any) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float needed = round_up_log2(row_lanes_max(largest_of(l[i], bits)));
      if (!any || !(needed > scale[i])) continue;
      const float factor = exp2_integer(scale[i] - needed);
      scale[i] = needed;
      normalizer[i] *= factor;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i][j] *= factor;
    }
  }

  __device__ __forceinline__ void store(const CausalCall& call, const CausalState& to, int first,
                                        int block) {
    const int m = static_cast<int>(call.problem.features), stride = call.values_padded();
    clear_beyond(sum, call.problem, first);
    store_tile(sum, to.sum + static_cast<std::int64_t>(first) * stride + block * kTile, stride);
    if (block != 0 || col0() != 0) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = first + row0() + i;
      to.normalizer[r] = normalizer[i];
      to.scale[r] = r < m ? scale[i] : kEmptyScale;
    }
  }
};

/// Which part of the sums a block has: grid.x is works() times slices times value blocks.
struct Part {
  std::int64_t work;
  int first, block;

  __device__ explicit Part(const CausalCall& call) {
    const unsigned parts = static_cast<unsigned>(call.slices * call.value_blocks);
    const unsigned part = blockIdx.x % parts;
    work = blockIdx.x / parts;
    first = static_cast<int>(part) / call.value_blocks * kTile;
    block = static_cast<int>(part) % call.value_blocks;
  }
};

/// The sum of a segment's keys, into the slot of the next segment. Tiles: k, W, phi, v.
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    sum_keys(const __grid_constant__ CausalCall call) {
  CausalShared& s = causal_shared();
  const Problem& p = call.problem;
  const Part part(call);
  if ((part.work + 1) % call.segments == 0) return;
  begin_segment(s, call, part.work);
  SliceSum total(kEmptyScale);
  for (std::int64_t begin = s.segment.begin; begin < s.segment.end; begin += kTile) {
    const Tokens live = begin_keys(s, call, begin);
    float l[4][4];
    project_slice(l, s, p, {s.key_projection, s.keys, part.first, call.dim_blocks == 1},
                  Live{live});
    add_terms(l, s, p);
    const unsigned bits = column_bits(live);
    if (p.exponential) {
      total.lift(l, bits, live != 0);
    } else if (live != 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total.scale[i] = 0;
    }
    make_key_features(l, p, part.first, total.scale, bits);
    float sum[4];
    row_sum(l, sum);
#pragma unroll
    for (int i = 0; i < 4; ++i) total.normalizer[i] += sum[i];
    store_acc_transposed(l, s.tile(2));
    load_rows(s.tile(3), s.values, part.block * kTile, Live{live});
    __syncthreads();
    product(total.sum, s.tile(2), s.tile(3));
  }
  total.store(call, call.state(part.work + 1), part.first, part.block);
}

/// The gradient of a segment's rows, into the slot of the segment before. Tiles: q, W, p, g.
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    sum_rows(const __grid_constant__ CausalCall call, const __grid_constant__ BackwardInputs in) {
  CausalShared& s = causal_shared();
  const Problem& p = call.problem;
  const Part part(call);
  if (part.work % call.segments == 0) return;
  begin_segment(s, call, part.work);
  SliceSum total(p.exponential ? kEmptyScale : 0.0F);
  for (std::int64_t begin = s.segment.begin; begin < s.segment.end; begin += kTile) {
    begin_chunk(s, call, begin);
    for (int g = 0; g < call.group; ++g) {
      const std::int64_t head = s.segment.head * call.group + g;
      begin_head(s, call, head, in.grad_out, s.gradient);
      load_row_scales(s, call, in, head);
      load_along(s, call, head);
      const Tokens rows = present_rows(s);
      float l[4][4];
      project_slice(l, s, p, {s.query_projection, s.queries, part.first, false}, AllLive{});
      const unsigned bits = column_bits(rows);
      if (p.exponential) {
        float relative[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float shift = s.shift[col0() + j];
#pragma unroll
          for (int i = 0; i < 4; ++i) relative[i][j] = l[i][j] - shift;
        }
        total.lift(relative, bits, rows != 0);
      }
      make_row_weights(l, s, p, part.first, total.scale, bits);
      float sum[4];
      sum_along(sum, l, s);
#pragma unroll
      for (int i = 0; i < 4; ++i) total.normalizer[i] -= sum[i];
      store_acc_transposed(l, s.tile(2));
      load_rows(s.tile(3), s.gradient, part.block * kTile, Live{rows});
      __syncthreads();
      product(total.sum, s.tile(2), s.tile(3));
    }
  }
  total.store(call, call.state(part.work - 1), part.first, part.block);
}

/// Slots of an item in order (backwards: last to first): the boundary's state, then each merged
/// with the one before. A warp has one feature.
__global__ void __launch_bounds__(kThreads)
    scan_states(const __grid_constant__ CausalCall call,
                const __grid_constant__ BoundaryState boundary, const bool backwards) {
  constexpr int kValues = 256 / 32;  // of a lane, at most
  const int features = call.features_padded(), stride = call.values_padded();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_id();
  const std::int64_t item = row / features;
  const int r = static_cast<int>(row % features);
  if (item >= call.items) return;
  float sum[kValues];
  float normalizer = boundary.normalizer(item, r), scale = boundary.scale(item, r);
#pragma unroll
  for (int n = 0; n < kValues; ++n) {
    const int e = lane_id() + 32 * n;
    sum[n] = e < stride ? boundary.sum(item, r, e) : 0.0F;
  }
  for (int i = 0; i < call.segments; ++i) {
    const int segment = backwards ? call.segments - 1 - i : i;
    const CausalState state = call.state(item * call.segments + segment);
    float* to = state.sum + static_cast<std::int64_t>(r) * stride;
    if (i > 0) {
      const MergeFactors merge = merge_factors(scale, state.scale[r]);
#pragma unroll
      for (int n = 0; n < kValues; ++n) {
        const int e = lane_id() + 32 * n;
        if (e < stride) sum[n] = sum[n] * merge.first + to[e] * merge.second;
      }
      normalizer = normalizer * merge.first + state.normalizer[r] * merge.second;
      scale = merge.scale;
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kValues; ++n) {
      const int e = lane_id() + 32 * n;
      if (e < stride) to[e] = sum[n];
    }
    if (lane_id() == 0) {
      state.normalizer[r] = normalizer;
      state.scale[r] = scale;
    }
  }
}

cudaError_t launch_scan(const CausalCall& call, const BoundaryState& boundary, bool backwards,
                        cudaStream_t stream) {
  const std::int64_t rows = call.items * call.features_padded();
  return launch(scan_states, {divide_up(rows, kWarps), kThreads}, stream, call, boundary,
                backwards);
}

std::int64_t sum_blocks(const CausalCall& call) {
  return call.works() * call.slices * call.value_blocks;
}

}  // namespace

cudaError_t launch_states_before(const CausalCall& call, cudaStream_t stream) {
  if (call.segments == 1) return cudaSuccess;
  const cudaError_t error =
      launch(sum_keys, {sum_blocks(call), kThreads, kCausalBytes}, stream, call);
  if (error != cudaSuccess) return error;
  return launch_scan(call, BoundaryState::initial(call.problem), false, stream);
}

cudaError_t launch_gradients_after(const CausalCall& call, const BackwardInputs& in,
                                   cudaStream_t stream) {
  if (call.segments == 1) return cudaSuccess;
  const cudaError_t error =
      launch(sum_rows, {sum_blocks(call), kThreads, kCausalBytes}, stream, call, in);
  if (error != cudaSuccess) return error;
  return launch_scan(call, BoundaryState::gradient(call.problem, in), true, stream);
}

}  // namespace performer::kernels::cuda::portable
