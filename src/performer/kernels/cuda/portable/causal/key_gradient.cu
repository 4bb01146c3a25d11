#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/portable/causal/key_chunk.cuh"
#include "performer/kernels/cuda/portable/causal/state.cuh"

// The gradient of keys and values: a walk backwards with (dS, dz), the sums over the rows after the
// chunk, relative to scales e of those rows:
//   p_ir = 2^(lq_ir - e_r) / den_i,  phi_jr = 2^(lk_jr + e_r)
//   slope_rj = v_j . dS_r + dz_r + sum_{i >= j} p_ir (g_i . v_j - along_i)
//   d log phi_r(k_j) = phi_jr slope_rj
//   dv_j = sum_r phi_jr dS_r + sum_{i >= j} (sum_r p_ir phi_jr) g_i
//   dS_r += sum_i p_ir g_i,  dz_r -= sum_i p_ir along_i
// A key's weight in a row that sees it is at most 1, so that phi <= 2 for all keys before the rows
// that made e.
namespace performer::kernels::cuda::portable {
namespace {

struct KeyGradient : KeyChunk {
  /// The chunk at hand (project_keys), last part first. wanted: (dS, dz) is needed after it.
  __device__ __forceinline__ void operator()(bool wanted) const {
    project_rows();
    for (int end = s.count; end > 0; end = s.part.begin) {
      choose_row_scales(s, call, end);
      for (int block = 0; block < call.value_blocks; ++block) value_gradient(block);
      key_gradient();
      if (wanted || s.part.begin > 0) add_rows();
    }
  }

 private:
  /// dv of one block of values. Tile 3 keeps the weights of a single head for the next block.
  __device__ __forceinline__ void value_gradient(int block) const {
    float acc[4][4], weights[4][4], x[4][4], reference[4];
    const bool own_weights = single() && block == 0;
    clear(acc);
    clear(weights);
    for (int slice = 0; slice < call.slices; ++slice) {
      __syncthreads();
      key_features(x, slice);
      store_acc(x, s.tile(0));
      state_tile(x, slice, block);
      store_acc(x, s.tile(1));
      if (own_weights) {
        load_rows_of(reference, s.scratch.reference, slice * kTile);
        row_weights(x, 0, slice, reference);
        store_acc(x, s.tile(2));
      }
      __syncthreads();
      product(acc, s.tile(0), s.tile(1));
      if (own_weights) product(weights, s.tile(2), s.tile(0));
    }
    for (int g = 0; g < call.group; ++g) {
      if (!single()) {
        enter_head(g);
        head_weights(weights, g);
      }
      if (!single() || block == 0) {
        clear_later(weights);
        store_acc(weights, s.tile(3));
      }
      __syncthreads();
      load_rows(s.tile(1), s.gradient, block * kTile, Live{s.part.rows});
      write_to(out.v, call.problem.value_dim);
      __syncthreads();
      product(acc, s.tile(3), s.tile(1));
    }
    store_keys(block * kTile, acc);
  }

  /// weights[row][key] = sum_r p phi of one of several heads.
  __device__ __forceinline__ void head_weights(float (&weights)[4][4], int g) const {
    clear(weights);
    for (int slice = 0; slice < call.slices; ++slice) {
      float x[4][4], reference[4];
      load_rows_of(reference, s.scratch.reference, slice * kTile);
      row_weights(x, g, slice, reference);
      __syncthreads();
      store_acc(x, s.tile(2));
      key_features(x, slice);
      store_acc(x, s.tile(0));
      __syncthreads();
      product(weights, s.tile(2), s.tile(0));
    }
  }

  /// dk. In the scratch, the keys' log2 features of the part become the gradient for them.
  __device__ __forceinline__ void key_gradient() const {
    float total[1][4] = {{0, 0, 0, 0}};
    if (single()) make_pairs();
    for (int slice = 0; slice < call.slices; ++slice) {
      float slope[4][4];
      clear(slope);
      add_state_slopes(slope, slice);
      if (single()) {
        product(slope, s.tile(2), s.tile(3));
      } else {
        for (int g = 0; g < call.group; ++g) add_head_slopes(slope, g, slice);
      }
      differentiate(slope, slice, total);
    }
    __syncthreads();
    column_sum_parts(total, s.parts);
    __syncthreads();
    if (threadIdx.x < kTile)
      s.total[threadIdx.x] = column_sum(s.parts, static_cast<int>(threadIdx.x));
    pull_back();
  }

  /// slope[feature][key] += v . dS + dz. A single head's p goes to tile 2, [row][feature].
  __device__ __forceinline__ void add_state_slopes(float (&slope)[4][4], int slice) const {
    const int first = slice * kTile;
    float x[4][4], reference[4], factor[4], z[4];
    const bool resident = single() && call.value_blocks == 1;
    for (int block = 0; block < call.value_blocks; ++block) {
      state_tile(x, slice, block);
      __syncthreads();
      store_acc_transposed(x, s.tile(0));
      if (!resident) load_columns(s.tile(1), s.values, block * kTile, Live{s.part.use});
      if (single() && block == 0) {
        load_rows_of(reference, s.scratch.reference, first);
        row_weights(x, 0, slice, reference);
        store_acc_transposed(x, s.tile(2));
      }
      __syncthreads();
      product(slope, s.tile(0), s.tile(1));
    }
    load_rows_of(reference, s.scratch.reference, first);
    reference_factors(factor, s, reference, first);
    load_rows_of(z, s.state.normalizer, first);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) slope[i][j] = fmaf(z[i], factor[i], slope[i][j]);
    }
  }

  /// slope += p (g . v - along) of one of several heads.
  __device__ __forceinline__ void add_head_slopes(float (&slope)[4][4], int g, int slice) const {
    float x[4][4], reference[4];
    enter_head(g);
    make_pairs();
    load_rows_of(reference, s.scratch.reference, slice * kTile);
    row_weights(x, g, slice, reference);
    __syncthreads();
    store_acc_transposed(x, s.tile(2));
    __syncthreads();
    product(slope, s.tile(2), s.tile(3));
  }

  /// Into the scratch, for the keys of the part; total: sums over features.
  __device__ __forceinline__ void differentiate(const float (&slope)[4][4], int slice,
                                                float (&total)[1][4]) const {
    const Problem& p = call.problem;
    const unsigned bits = column_bits(s.part.use);
    float x[4][4], reference[4];
    float* to = s.scratch.keys + slice * kTileArea;
    load_rows_of(reference, s.scratch.reference, slice * kTile);
    load_tile(x, to, kTile);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float weight =
            p.exponential ? exp2_fast(x[i][j] + reference[i]) : relu_slope(x[i][j]);
        const float gradient = weight * slope[i][j];
        if ((bits >> j & 1U) == 0) continue;
        x[i][j] = gradient;
        total[0][j] += gradient;
      }
    }
    store_tile(x, to, kTile);
  }

  __device__ __forceinline__ void pull_back() const {
    const Problem& p = call.problem;
    for (int column = 0; column < p.dim; column += kTile) {
      float acc[4][4], x[4][4];
      clear(acc);
      for (int slice = 0; slice < call.slices; ++slice) {
        load_tile(x, s.scratch.keys + slice * kTileArea, kTile);
        __syncthreads();
        store_acc(x, s.tile(0));
        load_projection_rows(s.tile(1), s.key_projection, slice * kTile, column);
        write_to(out.k, p.dim);
        __syncthreads();
        product(acc, s.tile(0), s.tile(1));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row0() + i;
        const float4 k = p.norm_gradient != 0 && has(s.part.use, row)
                             ? fetch4(s.keys, row, column + col0())
                             : make_float4(0, 0, 0, 0);
        const float own = p.norm_gradient * s.total[row];
        acc[i][0] = fmaf(own, k.x, acc[i][0] * p.pull_back);
        acc[i][1] = fmaf(own, k.y, acc[i][1] * p.pull_back);
        acc[i][2] = fmaf(own, k.z, acc[i][2] * p.pull_back);
        acc[i][3] = fmaf(own, k.w, acc[i][3] * p.pull_back);
      }
      store_keys(column, acc);
    }
  }

  /// (dS, dz, e) with the rows of the part. Tile 2: p as [row][feature], tile 3: g.
  __device__ __forceinline__ void add_rows() const {
    const int stride = call.values_padded();
    if (call.problem.exponential) lift_scales();
    for (int slice = 0; slice < call.slices; ++slice) {
      const int first = slice * kTile;
      float along[4] = {0, 0, 0, 0};
      for (int block = 0; block < call.value_blocks; ++block) {
        float acc[4][4];
        state_tile(acc, slice, block);
        for (int g = 0; g < call.group; ++g) {
          if (!single()) enter_head(g);
          if (!single() || block == 0) {
            float x[4][4], reference[4], sum[4];
            load_rows_of(reference, s.scratch.reference, first);
            row_weights(x, g, slice, reference);
            sum_along(sum, x, s);
#pragma unroll
            for (int i = 0; i < 4; ++i) along[i] += block == 0 ? sum[i] : 0.0F;
            __syncthreads();
            store_acc_transposed(x, s.tile(2));
          } else {
            __syncthreads();
          }
          if (slice == 0 || !single() || call.value_blocks > 1) {
            load_rows(s.tile(3), s.gradient, block * kTile, Live{s.part.rows});
          }
          __syncthreads();
          product(acc, s.tile(2), s.tile(3));
        }
        store_tile(acc, s.state.sum + static_cast<std::int64_t>(first) * stride + block * kTile,
                   stride);
      }
      if (col0() != 0) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = first + row0() + i;
        const float scale = s.scratch.reference[r];
        const float factor = exp2_integer(s.state.scale[r] - scale);
        s.state.scale[r] = scale;
        s.state.normalizer[r] = fmaf(s.state.normalizer[r], factor, -along[i]);
      }
    }
  }

  /// The reference becomes the scales that the sums with the part's rows need. Ends in a barrier.
  __device__ __forceinline__ void lift_scales() const {
    const unsigned bits = column_bits(s.part.rows);
    for (int slice = 0; slice < call.slices; ++slice) {
      float l[4][4], scale[4];
      load_tile(l, s.scratch.queries + slice * kTileArea, kTile);
      load_rows_of(scale, s.state.scale, slice * kTile);
      if (single()) subtract_shifts(l);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float most = row_lanes_max(largest_of(l[i], bits));
        if (most > kReachedScale) scale[i] = fmaxf(scale[i], round_up_log2(most));
        if (col0() == 0) s.scratch.reference[slice * kTile + row0() + i] = scale[i];
      }
    }
    __syncthreads();
  }
};

__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    key_gradients(const __grid_constant__ CausalCall call,
                  const __grid_constant__ BackwardInputs in,
                  const __grid_constant__ BackwardOutputs out) {
  CausalShared& s = causal_shared();
  const KeyGradient gradient{{s, call, in, out}};
  for (std::int64_t work = blockIdx.x; work < call.works(); work += gridDim.x) {
    begin_segment(s, call, work);
    if (call.segments == 1) {
      load_boundary(call, BoundaryState::gradient(call.problem, in), s.segment.item, s.state);
    }
    const bool initial = s.segment.index == 0 && out.state.normalizer != nullptr;
    for (auto chunks = static_cast<int>((s.segment.end - s.segment.begin + kTile - 1) / kTile);
         chunks > 0; --chunks) {
      project_keys(s, call, s.segment.begin + static_cast<std::int64_t>(chunks - 1) * kTile);
      gradient(initial || chunks > 1);
    }
    __syncthreads();
    if (initial) store_initial_gradient(call, s.state, s.segment.item, in, out.state);
  }
}

}  // namespace

cudaError_t launch_key_gradients(const CausalCall& call, const BackwardInputs& in,
                                 const BackwardOutputs& out, cudaStream_t stream) {
  return launch(key_gradients, {call.blocks, kThreads, kCausalBytes}, stream, call, in, out);
}

}  // namespace performer::kernels::cuda::portable
