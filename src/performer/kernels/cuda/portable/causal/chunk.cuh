#pragma once

#include "performer/kernels/cuda/portable/causal/project.cuh"

// The pieces of a causal chunk of 64 tokens that all walks share: features relative to scales that
// no later token decides, and the state after the chunk's keys.
namespace performer::kernels::cuda::portable {

/// Features relative to scales that no later token decides may exceed them by 2^50; a token with
/// more starts a part of the chunk of its own.
inline constexpr float kHeadroom = 50;
/// phi, in place of l (or u): 2^(l - scale_row) of the keys of the bits, 0 for others.
__device__ __forceinline__ void make_key_features(float (&l)[4][4], const Problem& p, int first,
                                                  const float (&scale)[4], unsigned bits) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool real = first + row0() + i < p.features;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float phi = p.exponential ? exp2_fast(l[i][j] - scale[i])
                                      : (real ? relu(l[i][j]) + p.eps_value : 0.0F);
      l[i][j] = (bits >> j & 1U) != 0 ? phi : 0.0F;
    }
  }
}
/// Query features, in place of l (or u): 2^(l + (scale_row - shift_column)).
__device__ __forceinline__ void make_query_features(float (&l)[4][4], const Problem& p, int first,
                                                    const float (&scale)[4], const float* shift) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float column_shift = shift[col0() + j];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool real = first + row0() + i < p.features;
      l[i][j] = p.exponential ? exp2_fast(l[i][j] + (scale[i] - column_shift))
                              : (real ? relu(l[i][j]) + p.eps_value : 0.0F);
    }
  }
}

/// The state times 2^(c - reference): its factors for the thread's rows.
__device__ __forceinline__ void reference_factors(float (&factor)[4], const CausalShared& s,
                                                  const float (&reference)[4], int first) {
  load_rows_of(factor, s.state.scale, first);
#pragma unroll
  for (int i = 0; i < 4; ++i) factor[i] = exp2_integer(factor[i] - reference[i]);
}

/// s.part: the part of the chunk from token `begin` on whose key features may be formed relative to
/// scales that no later token decides, and those scales: of the state, or of the first key where it
/// is empty; raised to the part's first token where that exceeds them. Any row that sees a key
/// finds 2^-2 of its own scale in its denominator. Starts and ends with a barrier.
__device__ __forceinline__ void choose_key_scales(CausalShared& s, const CausalCall& call,
                                                  int begin) {
  const Problem& p = call.problem;
  __syncthreads();
  const Tokens after = s.live & ~tokens_below(begin);
  const int first_live = after == 0 ? kTile : __ffsll(static_cast<long long>(after)) - 1;
  const int lane = static_cast<int>(threadIdx.x) % 16, column = 4 * lane;
  int cut = s.count;
  bool reached = false;
  for (int r = static_cast<int>(threadIdx.x) / 16; r < call.features_padded(); r += 16) {
    const float c = s.state.scale[r];
    const bool empty = c <= kReachedScale, real = r < p.features;
    reached = reached || (!empty && real);
    float reference = p.exponential ? c : 0.0F;
    if (p.exponential && real) {
      const int at = empty ? first_live : begin;
      const float* l = s.scratch.keys + static_cast<std::int64_t>(r) * kTile;
      if (at < kTile && has(after, at)) {
        const float own = l[at];
        if (empty || own - c > kHeadroom) reference = round_up_log2(own);
      }
      const float4 x = *reinterpret_cast<const float4*>(l + column);
      const float relative[4] = {x.x - reference, x.y - reference, x.z - reference,
                                 x.w - reference};
#pragma unroll
      for (int j = 3; j >= 0; --j) {
        const bool later = column + j > at && has(after, column + j);
        if (later && relative[j] > kHeadroom) cut = min(cut, column + j);
      }
    }
    if (lane == 0) s.scratch.reference[r] = reference;
  }
  cut = __reduce_min_sync(0xffffffffU, cut);
  if (lane_id() == 0) s.flags[warp_id()] = cut;
  const bool any = __syncthreads_or(reached ? 1 : 0) != 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) cut = min(cut, s.flags[w]);
  if (threadIdx.x == 0) s.part = {after & tokens_below(cut), 0, begin, cut, any};
  __syncthreads();
}

/// The state after the part's keys: (S, z, c), with c the scales its keys need.
/// Tiles 0 and 1. Starts with a barrier; the state is visible to the block after the next one.
__device__ __forceinline__ void add_keys(CausalShared& s, const CausalCall& call) {
  const Problem& p = call.problem;
  const unsigned bits = column_bits(s.part.use);
  const int stride = call.values_padded();
  for (int slice = 0; slice < call.slices; ++slice) {
    const int first = slice * kTile;
    float phi[4][4], scale[4], z[4], factor[4], top[4], sum[4];
    load_tile(phi, s.scratch.keys + slice * kTileArea, kTile);
    load_rows_of(scale, s.state.scale, first);
    load_rows_of(z, s.state.normalizer, first);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float most = largest_of(phi[i], bits);
      top[i] = p.exponential ? row_lanes_max(most) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool rises = s.part.use != 0 && first + row0() + i < p.features;
      const float needed = rises ? fmaxf(scale[i], round_up_log2(top[i])) : scale[i];
      factor[i] = exp2_integer(scale[i] - needed);
      scale[i] = needed;
    }
    make_key_features(phi, p, first, scale, bits);
    row_sum(phi, sum);
    __syncthreads();
    store_acc_transposed(phi, s.tile(0));
    if (col0() == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s.state.scale[first + row0() + i] = scale[i];
        s.state.normalizer[first + row0() + i] = fmaf(z[i], factor[i], sum[i]);
      }
    }
    for (int block = 0; block < call.value_blocks; ++block) {
      if (block > 0) __syncthreads();
      if (slice == 0 || call.value_blocks > 1) {
        load_rows(s.tile(1), s.values, block * kTile, Live{s.part.use});
      }
      __syncthreads();
      float acc[4][4];
      float* to = s.state.sum + static_cast<std::int64_t>(first) * stride + block * kTile;
      load_tile(acc, to, stride);
      multiply_rows(acc, factor);
      product(acc, s.tile(0), s.tile(1));
      clear_beyond(acc, p, first);
      store_tile(acc, to, stride);
    }
  }
}

}  // namespace performer::kernels::cuda::portable
