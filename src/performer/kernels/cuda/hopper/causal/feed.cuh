#pragma once

#include "performer/kernels/cuda/hopper/causal/layout.cuh"

// The producers of a scan: per side as many warps as stages, a stage each.
namespace performer::kernels::cuda::hopper {

/// Values from 2^20 on (bfloat16), which times weights of 2^86 and summed might overflow.
inline constexpr std::uint32_t kOddValue = 0x4980;

/// What the scan needs to know of a carried tile beforehand: a bound of its exponents, odd values,
/// and, in reverse, the columns beside its values.
template <int kDim>
struct CarriedTile {
  float longest, bias;  // of the features: the largest |W'| and bias
  std::uint32_t side;   // reverse: address of the columns
  int stage;
  bool half, reverse;

  __device__ CarriedTile(const ScanArguments& a, const ScanBlock& block, char* side, int stage)
      : longest(0),
        bias(-INFINITY),
        side(shared_address(side)),
        stage(stage),
        half(a.carried.half),
        reverse(a.reverse) {
    const Projection& w = a.carried_side;
    const int wide = a.slices * kRows;
    const std::int64_t first = std::int64_t{block.head} / (a.heads / w.heads) * wide;
    for (int r = static_cast<int>(threadIdx.x % 32); r < wide; r += 32) {
      longest = fmaxf(longest, w.norm[first + r]);
      bias = fmaxf(bias, w.bias[first + r]);
    }
    for (int step = 16; step > 0; step /= 2) {
      longest = fmaxf(longest, __shfl_xor_sync(~0U, longest, step));
      bias = fmaxf(bias, __shfl_xor_sync(~0U, bias, step));
    }
  }

  __device__ bool operator()(const ScanStage<kDim>& tile) const {
    __syncwarp();  // terms and zeros of other lanes
    const int lane = static_cast<int>(threadIdx.x % 32);
    float upper = -INFINITY;
    std::uint32_t odd[2];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int row = 32 * part + lane;
      float square = 0;
      std::uint32_t large = 0;
#pragma unroll 2
      for (int i = 0; i < Tile<kDim>::kChunks; ++i) {
        const int at = Tile<kDim>::offset(row, i);
        const uint4 x = *reinterpret_cast<const uint4*>(tile.x() + at);
        const uint4 y = *reinterpret_cast<const uint4*>(tile.y() + at);
        square += half ? dot<true, true>(x, x) : dot<false, false>(x, x);
        // Both halves of each word at once: no carry, for 0x7FFF + 0x8000 - kOddValue < 2^16.
        constexpr std::uint32_t kMore = (0x8000 - kOddValue) * 0x10001U;
        const auto reaches = [](std::uint32_t pair) { return (pair & 0x7FFF7FFFU) + kMore; };
        large |= reaches(y.x) | reaches(y.y) | reaches(y.z) | reaches(y.w);
      }
      // -inf where the token takes no part: its x is 0. Not finite where the token is not.
      const float bound = fmaf(longest, sqrtf(square) * 1.0001F, tile.terms()[row]);
      upper = fmaxf(upper, bound);
      odd[part] = __ballot_sync(~0U, (large & 0x80008000U) != 0 || !(bound < INFINITY));
      if (reverse) {
        const float weight = tile.weights()[row];
        const float high = __uint_as_float(pack_bf16(0, weight) & 0xFFFF0000U);
        const uint4 columns{pack_bf16(weight, weight - high), 0, 0, 0};
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                         side + ScanLayout<kDim>::SideTile::offset(row, stage)),
                     "r"(columns.x), "r"(columns.y), "r"(columns.z), "r"(columns.w)
                     : "memory");
      }
    }
    for (int step = 16; step > 0; step /= 2) {
      upper = fmaxf(upper, __shfl_xor_sync(~0U, upper, step));
    }
    if (lane == 0) {
      *tile.upper() = upper + bias;
      tile.odd()[0] = odd[0], tile.odd()[1] = odd[1];
    }
    return reverse;
  }
};

template <int kDim, Kind kKind, class StageOf, class Hook>
__device__ void feed_side(const ScanArguments& a, const ScanBlock& block, const Tokens& tokens,
                          const RingBarriers& ring, int stages, int mine, StageOf stage_of,
                          Hook hook) {
  const Producer<kDim, kKind> producer(tokens, block.span(a));
  const auto stage = stage_of(mine);
  std::uint32_t parity = 0;
#pragma unroll 1
  for (int t = mine; t < block.tiles; t += stages) {
    const std::int64_t first = block.token(t, a.reverse);
    producer.begin(first, stage, ring.of(mine), parity ^ 1);
    producer.finish(first, stage, ring.of(mine), parity, hook);
    parity ^= 1;
  }
}

/// kReading: what queries are read for in the forward direction. Warps 0 and 2 feed the carried
/// side, 1 and 3 the reading one.
template <int kDim, Kind kReading>
__device__ void feed(const ScanArguments& a, const ScanLayout<kDim>& layout,
                     const ScanBlock& block) {
  const int warp = uniform(static_cast<int>(threadIdx.x / 32));
  const int mine = warp / 2;
  if (mine >= layout.stages) return;
  if (warp % 2 == 0) {
    const auto stage_of = [&](int index) { return layout.carried(index); };
    const CarriedTile<kDim> hook(a, block, layout.side(), mine);
    if (a.reverse) {
      feed_side<kDim, Kind::kSums>(a, block, a.carried, ScanBarriers::carried(), layout.stages,
                                   mine, stage_of, hook);
    } else {
      feed_side<kDim, Kind::kKeys>(a, block, a.carried, ScanBarriers::carried(), layout.stages,
                                   mine, stage_of, hook);
    }
  } else if (!a.alone) {
    const auto stage_of = [&](int index) { return layout.reading(index); };
    const auto hook = [](const auto&) { return false; };
    if (a.reverse) {
      feed_side<kDim, Kind::kKeys>(a, block, a.reading, ScanBarriers::reading(), layout.stages,
                                   mine, stage_of, hook);
    } else {
      feed_side<kDim, kReading>(a, block, a.reading, ScanBarriers::reading(), layout.stages, mine,
                                stage_of, hook);
    }
  }
}

}  // namespace performer::kernels::cuda::hopper
