#include "performer/kernels/cuda/hopper/state.h"

#include "performer/kernels/cuda/common/dispatch.h"
#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/hopper/producer.cuh"

// One producer warpgroup, and two consumers that own 64 or 128 features each. Their rows of W, in
// registers, are the left operand: W X^T comes out with features in rows, becomes exp2 in registers
// and goes straight back as the left operand of S += Phi^T Y. S stays there over all tokens.
namespace performer::kernels::cuda::hopper {
namespace {

template <int kDim, int kSlices, bool kGiven>
struct StateShape {
  static constexpr Kind kKind = kGiven ? Kind::kSums : Kind::kKeys;
  using StageType = Stage<kDim, kKind>;
  static constexpr int kConsumers = kStateConsumers;
  static constexpr int kOwned = kSlices == 4 ? 2 : 1;  // slices of a consumer
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kLanes = kSlices == 1 ? 2 : 1;  // consumers of a slice take tiles in turn
  static constexpr int kStages = kDim == 128 ? 4 : 8;
  static constexpr bool kOnesColumn = !kGiven && kDim < 128;
  static constexpr int kSumColumns = kOnesColumn ? kDim + 8 : kDim;
  static constexpr int kWeights = kSlices * Tile<kDim>::kBytes;  // high, then low
  static constexpr int kRing = 2 * kWeights;
  static constexpr int kOnes = kRing + kStages * StageType::kBytes;  // 2 KiB of bfloat16 1
  static constexpr int kBarriers = kOnes + 2048;
  static constexpr int kShared = kBarriers + 256 + 1024;  // and alignment
  __device__ static StageType stage(char* shared, int index) {
    return {shared + kRing + index * StageType::kBytes};
  }

  // Registers: the block has kThreads * kEntry; consumers take what the producer gives.
  static constexpr int kEntry = 65536 / kThreads / 8 * 8;
  static constexpr int kProducer = 56;
  static constexpr int kConsumer = (kEntry * (kConsumers + 1) - kProducer) / kConsumers / 8 * 8;
};

/// The scales of 64 features are raised, and their sums with them, where an exponent is above.
template <int kDim, int kColumns>
__device__ void raise_scales(const float (&u)[32], const float (&bias)[2], float (&c)[2],
                             float (&z)[2], float (&sum)[kColumns / 2]) {
  float top[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float t[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) t[i] = fmaxf(u[4 * i + 2 * h], u[4 * i + 2 * h + 1]);
#pragma unroll
    for (int i = 4; i < 8; ++i) {
      t[i % 4] = fmaxf(t[i % 4], fmaxf(u[4 * i + 2 * h], u[4 * i + 2 * h + 1]));
    }
    top[h] = fmaxf(fmaxf(t[0], t[1]), fmaxf(t[2], t[3]));
  }
  const bool rises = top[0] + bias[0] > c[0] || top[1] + bias[1] > c[1];
  if (!__any_sync(~0U, rises)) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float needed = ceilf(quad_max(top[h]) + bias[h]);
    if (needed > -INFINITY && needed > c[h]) {
      const float raised = fminf(fmaxf(needed, -kScaleLimit), kScaleLimit);
      const float factor = exp2_fast(c[h] - raised);
      c[h] = raised;
      z[h] *= factor;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        sum[4 * j + 2 * h] *= factor;
        sum[4 * j + 2 * h + 1] *= factor;
      }
    }
  }
}

/// Begins u = W X^T of the slices that a consumer owns, one after the other: of two, one multiplies
/// while the other takes exponentials. low: of the first slice, what its W lost in rounding.
template <bool kHalf, int kDim, int kOwned>
__device__ inline void project(float (&u)[kOwned][32], const Fragment<kDim> (&high)[kOwned],
                               std::uint32_t low, std::uint32_t x) {
  mma_fence();
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    multiply_tiles<kHalf, kDim>(u[i], low + i * Tile<kDim>::kBytes, x, false);
    multiply<kHalf>(u[i], high[i], x, true);
    mma_commit();
  }
  mma_wait<kOwned - 1>();
}

/// Terms of tokens may be large: added last, with one rounding.
__device__ inline void add_terms(float (&u)[32], const float* terms) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 t = *reinterpret_cast<const float2*>(terms + 8 * j);
    u[4 * j] += t.x, u[4 * j + 1] += t.y;
    u[4 * j + 2] += t.x, u[4 * j + 3] += t.y;
  }
}

__device__ inline void make_features(std::uint32_t (&phi)[16], const float (&u)[32],
                                     const float (&shift)[2]) {
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    phi[k] = pack_bf16(exp2_fast(u[2 * k] - shift[k % 2]), exp2_fast(u[2 * k + 1] - shift[k % 2]));
  }
}

/// Sums of the rounded features, whose errors cancel against those of S. weights: of the tokens, of
/// given scales.
template <bool kGiven>
__device__ inline void add_sums(float (&z)[2], const std::uint32_t (&phi)[16],
                                const float* weights) {
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float2 weight{1, 1};
    if constexpr (kGiven) weight = *reinterpret_cast<const float2*>(weights + 8 * (k / 2));
    const float2 rounded = unpack<false>(phi[k]);
    z[k % 2] = fmaf(rounded.x, weight.x, fmaf(rounded.y, weight.y, z[k % 2]));
  }
}

/// A block's part of the sums.
struct StateWork {
  char* shared;
  Barrier* weights;
  const RingBarriers& barriers;
  std::int64_t item;
  int split, first_slice, tiles;
};

template <int kDim, int kSlices, bool kGiven>
__device__ void consume(const StateArguments& a, const StateWork& work) {
  using Shape = StateShape<kDim, kSlices, kGiven>;
  const auto& [shared, weights, barriers, item, split, first_slice, tiles] = work;
  constexpr int kOwned = Shape::kOwned;
  const int consumer = warpgroup() - 1;
  const int group = Shape::kLanes == 1 ? consumer * kOwned : 0;
  const int lane = Shape::kLanes == 1 ? 0 : consumer;
  const Place place;
  const int feature = (first_slice + group) * kRows + place.row;
  const std::int64_t wide = static_cast<std::int64_t>(a.slices) * kRows;

  float bias[kOwned][2], c[kOwned][2], z[kOwned][2] = {};
  const int heads = a.tokens.heads;
  const std::int64_t head = item % heads / (heads / a.projection.heads);
#pragma unroll
  for (int i = 0; i < 2 * kOwned; ++i) {
    const int r = feature + i / 2 * kRows + 8 * (i % 2);
    bias[i / 2][i % 2] = a.projection.bias[head * wide + r];
    float scale = kEmptyScale;
    if constexpr (kGiven) {
      const std::int64_t state =
          item / heads * a.state_heads + item % heads / (heads / a.state_heads);
      // Query exponents are l + c: c takes the sign of a shift.
      scale = r < a.features ? -static_cast<float>(a.log2_scale[state * a.features + r]) : 0;
    }
    c[i / 2][i % 2] = scale;
  }
  // Keys: one more column, of ones, sums the rounded features to z.
  float sum[kOwned][Shape::kSumColumns / 2];
#pragma unroll
  for (auto& owned : sum) {
#pragma unroll
    for (float& s : owned) s = 0;
  }
  const std::uint32_t base = shared_address(shared), ones = base + Shape::kOnes;
  const std::uint32_t low = base + Shape::kWeights + group * Tile<kDim>::kBytes;
  Fragment<kDim> high[kOwned];
  wait(weights, 0);
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    high[i].load(base + (group + i) * Tile<kDim>::kBytes);
  }

#pragma unroll 1
  for (int tile = lane; tile < tiles; tile += Shape::kLanes) {
    const Ring ring(tile, Shape::kStages);
    const auto stage = Shape::stage(shared, ring.stage);
    wait(barriers.full + ring.stage, ring.parity);
    const std::uint32_t x = shared_address(stage.x()), y = shared_address(stage.y());
    float u[kOwned][32];
    if (a.tokens.half) {
      project<true>(u, high, low, x);
    } else {
      project<false>(u, high, low, x);
    }
    std::uint32_t phi[kOwned][16];
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      if (i > 0) mma_wait<1>();
      settle(u[i]);
      add_terms(u[i], stage.terms() + place.column);
      if constexpr (!kGiven) {
        raise_scales<kDim, Shape::kSumColumns>(u[i], bias[i], c[i], z[i], sum[i]);
      }
      const float shift[2] = {c[i][0] - bias[i][0], c[i][1] - bias[i][1]};
      make_features(phi[i], u[i], shift);
      if constexpr (!Shape::kOnesColumn) {
        add_sums<kGiven>(z[i], phi[i], stage.weights() + place.column);
      }
      mma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        if constexpr (Shape::kOnesColumn) {
          mma_rows(sum[i], phi[i] + 4 * step, Tile<kDim>::row_major(y, step, ones), true);
        } else {
          mma_rows(sum[i], phi[i] + 4 * step, Tile<kDim>::row_major(y, step), true);
        }
      }
      mma_commit();
    }
    mma_wait<0>();
    if (threadIdx.x % 32 == 0) arrive(barriers.empty + ring.stage);
  }

  const std::int64_t partial = ((item * a.splits + split) * Shape::kLanes + lane) * wide + feature;
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total =
          Shape::kOnesColumn ? sum[i][Shape::kSumColumns / 2 - 4 + 2 * h] : quad_sum(z[i][h]);
      const std::int64_t at = partial + i * kRows + 8 * h;
      if (place.column == 0) {
        a.normalizer[at] = total;
        if constexpr (!kGiven) a.scale[at] = c[i][h];
      }
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
        *reinterpret_cast<float2*>(a.sum + at * kDim + 8 * j + place.column) =
            float2{sum[i][4 * j + 2 * h], sum[i][4 * j + 2 * h + 1]};
      }
    }
  }
}

template <int kDim, int kSlices, bool kGiven>
__global__ void __launch_bounds__(StateShape<kDim, kSlices, kGiven>::kThreads, 1)
    state_kernel(const __grid_constant__ StateArguments a) {
  using Shape = StateShape<kDim, kSlices, kGiven>;
  extern __shared__ char memory[];
  char* shared = memory + (-shared_address(memory) & 1023);
  const RingBarriers barriers(shared + Shape::kBarriers, Shape::kStages);
  Barrier* weights = barriers.end(Shape::kStages);

  const int feature_groups = a.slices / kSlices;
  const int first_slice = static_cast<int>(blockIdx.x % feature_groups) * kSlices;
  const int split = static_cast<int>(blockIdx.x / feature_groups % a.splits);
  const std::int64_t item = blockIdx.x / feature_groups / a.splits;
  const std::int64_t begin = split_begin(a.tokens.length, split, a.splits);
  const auto tiles = static_cast<int>(split_begin(a.tokens.length, split + 1, a.splits) - begin);

  if (threadIdx.x == 0) {
    barriers.initialise(Shape::kStages, 32, 4 * Shape::kConsumers / Shape::kLanes);
    init(weights, 1);
    fence_barrier_init();
  }
  if (threadIdx.x < 128) {
    reinterpret_cast<uint4*>(shared + Shape::kOnes)[threadIdx.x] =
        uint4{0x3F803F80U, 0x3F803F80U, 0x3F803F80U, 0x3F803F80U};
    fence_async();
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    give_registers<Shape::kProducer>();
    const int heads = a.tokens.heads;
    const std::int64_t head = item % heads / (heads / a.projection.heads);
    const std::int64_t tile = head * a.slices + first_slice;
    if (threadIdx.x == 0) {
      constexpr int kElements = Tile<kDim>::kBytes / 2;
      arrive_expecting(weights, 2 * Shape::kWeights);
      bulk_load(shared, a.projection.high + tile * kElements, Shape::kWeights, weights);
      bulk_load(shared + Shape::kWeights, a.projection.low + tile * kElements, Shape::kWeights,
                weights);
    }
    const Producer<kDim, Shape::kKind> producer(a.tokens, item);
    produce_tiles(
        producer, begin, tiles, 0, RingShape(Shape::kStages, Shape::kLanes), barriers,
        [&](int index) { return Shape::stage(shared, index); }, [] {});
  } else {
    take_registers<Shape::kConsumer>();
    consume<kDim, kSlices, kGiven>(a, {shared, weights, barriers, item, split, first_slice, tiles});
  }
}

template <int kDim, int kSlices, bool kGiven>
cudaError_t launch_block(const StateArguments& a, cudaStream_t stream) {
  using Shape = StateShape<kDim, kSlices, kGiven>;
  const std::int64_t blocks = a.items * a.splits * (a.slices / kSlices);
  return launch(state_kernel<kDim, kSlices, kGiven>, {blocks, Shape::kThreads, Shape::kShared},
                stream, a);
}

template <int kDim, bool kGiven>
cudaError_t launch_width(const StateArguments& a, cudaStream_t stream) {
  return with_value<1, 2, 4>(block_slices(kDim, a.slices), [&](auto slices) {
    if constexpr (kDim == 128 && slices() == 4)
      return cudaErrorInvalidValue;  // never
    else
      return launch_block<kDim, slices(), kGiven>(a, stream);
  });
}

template <bool kGiven>
cudaError_t launch_sums(const StateArguments& a, int dim, cudaStream_t stream) {
  return with_value<32, 64, 128>(
      dim, [&](auto width) { return launch_width<width(), kGiven>(a, stream); });
}

}  // namespace

cudaError_t sum_keys(const StateArguments& a, int dim, cudaStream_t stream) {
  return launch_sums<false>(a, dim, stream);
}

cudaError_t sum_rows(const StateArguments& a, int dim, cudaStream_t stream) {
  return launch_sums<true>(a, dim, stream);
}

int padded_slices(int dim, std::int64_t features) {
  const auto slices = static_cast<int>((features + kRows - 1) / kRows);
  const int most = dim == 128 ? 2 : 4;
  return slices <= 2 ? slices : (slices + most - 1) / most * most;
}

}  // namespace performer::kernels::cuda::hopper
