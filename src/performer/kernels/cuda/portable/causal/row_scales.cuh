#pragma once

#include "performer/kernels/cuda/portable/causal/rows.cuh"

// Scales that the rows after a part of a chunk decide, in the walk backwards.
namespace performer::kernels::cuda::portable {

/// s.part: the part of the chunk before token `end` whose rows exceed the scales by no more than
/// the headroom, and those scales: of the later rows, or of the last row where there are none;
/// raised to the part's last row where that exceeds them. Starts and ends with a barrier.
__device__ __forceinline__ void choose_row_scales(CausalShared& s, const CausalCall& call,
                                                  int end) {
  const Problem& p = call.problem;
  __syncthreads();
  const Tokens before = s.rows & tokens_below(end);
  const int last = before == 0 ? -1 : 63 - __clzll(static_cast<long long>(before));
  const int lane = static_cast<int>(threadIdx.x) % 16, column = 4 * lane;
  int cut = 0;
  for (int r = static_cast<int>(threadIdx.x) / 16; r < call.features_padded(); r += 16) {
    const float e = s.state.scale[r];
    const bool empty = e <= kReachedScale;
    float reference = p.exponential ? e : 0.0F;
    if (p.exponential && r < p.features) {
      const int at = empty ? last : end - 1;
      const float* l = s.scratch.queries + static_cast<std::int64_t>(r) * kTile;
      const auto relative = [&](int row) {
        return l[row] - (call.group == 1 ? s.shift[row] : 0.0F);
      };
      if (at >= 0 && has(before, at)) {
        const float own = relative(at);
        if (own > kReachedScale && (empty || own - e > kHeadroom)) reference = round_up_log2(own);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = column + i;
        const bool earlier = row < at && has(before, row);
        if (earlier && relative(row) - reference > kHeadroom) cut = max(cut, row + 1);
      }
    }
    if (lane == 0) s.scratch.reference[r] = reference;
  }
  cut = __reduce_max_sync(0xffffffffU, cut);
  if (lane_id() == 0) s.flags[warp_id()] = cut;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) cut = max(cut, s.flags[w]);
  if (threadIdx.x == 0) {
    const Tokens range = tokens_below(end) & ~tokens_below(cut);
    s.part = {s.live & range, s.rows & range, cut, end, false};
  }
  __syncthreads();
}

}  // namespace performer::kernels::cuda::portable
