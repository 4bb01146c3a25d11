#include "performer/kernels/cuda/hopper/output.h"

#include "performer/kernels/cuda/common/dispatch.h"
#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/hopper/staying.cuh"

// One producer warpgroup and two or three that own 64 queries each: U = Q W^T slice by slice, exp2
// in registers, straight back as the left operand of O += P [S / z, 1]. A row's shift is the
// maximum of its first slice, raised where a later one is 2^8 above it.
namespace performer::kernels::cuda::hopper {
namespace {

template <int kWidth>
struct OutputShape {
  static constexpr int kDim = kWidth;
  static constexpr Kind kKind = Kind::kQueries;
  using StageType = Stage<kDim, kKind>;
  static constexpr int kConsumers = kDim == 128 ? 2 : 3;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kProducer = 104;
  static constexpr int kConsumer = kConsumers == 3 ? 136 : 200;
  int weights, sums, column, factor, ring, barriers, shared;  // bytes; offsets from the start
  RingShape ring_shape;

  __host__ __device__ explicit OutputShape(int slices)
      : weights(slices * Tile<kDim>::kBytes),
        sums(2 * weights),
        column(sums + slices * SumTile<kDim>::kBytes),
        factor(column + slices * kRows * 4),
        ring((factor + kDim * 4 + 1023) / 1024 * 1024),
        barriers(0),
        shared(0),
        ring_shape((kSharedHopper - 2048 - ring) / StageType::kBytes, kConsumers) {
    barriers = ring + ring_shape.stages * StageType::kBytes;
    shared = barriers + 1024 + 1024;
  }

  __device__ StageType stage(char* memory, int index) const {
    return {memory + ring + index * StageType::kBytes};
  }
};

/// Weights are at most 1 when the shift is chosen. Later ones may be up to 2^8.
__device__ inline bool exceeds(const std::uint32_t (&p)[16]) {
  const auto pair = [&](int i) { return *reinterpret_cast<const __half2*>(&p[i]); };
  __half2 top[4] = {pair(0), pair(1), pair(2), pair(3)};
#pragma unroll
  for (int i = 4; i < 16; ++i) top[i % 4] = __hmax2(top[i % 4], pair(i));
  const __half2 most = __hmax2(__hmax2(top[0], top[1]), __hmax2(top[2], top[3]));
  return fmaxf(__low2float(most), __high2float(most)) > 256;
}

/// Whether a key reached one of the features; one flag per warp of the producer.
__device__ inline bool any_reached(const int* flags) {
  return (flags[0] | flags[1] | flags[2] | flags[3]) != 0;
}

/// u = Q W^T of the 64 features of a slice. low: bytes from their W to what it lost in rounding.
template <bool kHalf, int kDim>
__device__ inline void project(float (&u)[32], const Fragment<kDim>& queries, std::uint32_t high,
                               int low) {
  mma_fence();
  multiply<kHalf>(u, queries, high + low, false);
  multiply<kHalf>(u, queries, high, true);
  mma_commit();
  mma_wait<0>();
}

__device__ inline void make_weights(std::uint32_t (&p)[16], const float (&u)[32],
                                    const float (&shift)[2]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    p[i] = pack_f16(exp2_fast(u[2 * i] - shift[i % 2]), exp2_fast(u[2 * i + 1] - shift[i % 2]));
  }
}

/// The first slice chooses the rows' shifts; a later one raises them, and rescales the sums.
template <int kCount>
__device__ inline void choose_shifts(float (&shift)[2], float (&o)[kCount], const float (&u)[32],
                                     bool first) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = -INFINITY;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      top = fmaxf(top, fmaxf(u[4 * j + 2 * h], u[4 * j + 2 * h + 1]));
    }
    const float needed = fminf(fmaxf(ceilf(quad_max(top)), 2 * kEmptyScale), -kEmptyScale);
    if (first || needed > shift[h]) {
      const float factor = first ? 1 : exp2_fast(shift[h] - needed);
      shift[h] = needed;
#pragma unroll
      for (int j = 0; j < kCount / 4; ++j) {
        o[4 * j + 2 * h] *= factor;
        o[4 * j + 2 * h + 1] *= factor;
      }
    }
  }
}

template <int kDim>
__device__ void consume(const OutputArguments& a, const StayingBlock<OutputShape<kDim>>& block,
                        const int* reached) {
  const OutputShape<kDim>& shape = block.shape;
  const int consumer = warpgroup() - 1;
  const Place place;
  const std::uint32_t weights = shared_address(block.shared), sums = weights + shape.sums;
  const auto* column = reinterpret_cast<const float*>(block.shared + shape.column);
  const auto* factors = reinterpret_cast<const float*>(block.shared + shape.factor) + place.column;
  std::uint32_t parity = 0;
  Piece::for_each(a.items, a.tokens.length, [&](Piece piece) {
    wait(block.loaded, parity);
    parity ^= 1;
    const std::int64_t n = piece.item / a.tokens.heads, head = piece.item % a.tokens.heads;
    std::uint16_t* out = a.out.data + n * a.out.batch + head * a.out.head;
    block.visit_tiles(piece, consumer, [&](const auto& stage, std::int64_t first_token) {
      Fragment<kDim> queries;
      queries.load(shared_address(stage.x()));
      float o[SumTile<kDim>::kColumns / 2];
      float shift[2] = {0, 0};
#pragma unroll
      for (float& x : o) x = 0;
#pragma unroll 1
      for (int slice = 0; slice < a.slices; ++slice) {
        const std::uint32_t high = weights + slice * Tile<kDim>::kBytes;
        float u[32];
        if (a.tokens.half) {
          project<true>(u, queries, high, shape.weights);
        } else {
          project<false>(u, queries, high, shape.weights);
        }
        // Scales may be large: added last, with one rounding.
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 c =
              *reinterpret_cast<const float2*>(column + slice * kRows + 8 * j + place.column);
          u[4 * j] += c.x, u[4 * j + 1] += c.y, u[4 * j + 2] += c.x, u[4 * j + 3] += c.y;
        }
        std::uint32_t p[16];
        const bool first = slice == 0;
        if (!first) make_weights(p, u, shift);
        if (first || __any_sync(~0U, exceeds(p))) {
          choose_shifts(shift, o, u, first);
          make_weights(p, u, shift);
        }
        mma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          mma_f16(o, p + 4 * step,
                  SumTile<kDim>::descriptor(sums + slice * SumTile<kDim>::kBytes, step), true);
        }
        mma_commit();
        mma_wait<0>();
      }

      // Column d, in the first thread of a quad, is the sum of the weights.
      float inverse[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum =
            __shfl_sync(~0U, o[kDim / 2 + 2 * h], static_cast<int>(threadIdx.x % 32 & ~3U));
        // Keys that sum to 0 left the range of the scales.
        inverse[h] = sum == 0 ? (any_reached(reached) ? NAN : 0.0F) : 1 / sum;
        const std::int64_t token = first_token + place.row + 8 * h;
        if (a.row_sum != nullptr && place.column == 0 && token < a.tokens.length) {
          a.row_sum[piece.item * a.tokens.length + token] = sum;
          a.row_log2[piece.item * a.tokens.length + token] = static_cast<std::int32_t>(shift[h]);
        }
      }
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
        const float2 factor = *reinterpret_cast<const float2*>(factors + 8 * j);
        o[4 * j] *= factor.x, o[4 * j + 1] *= factor.y;
        o[4 * j + 2] *= factor.x, o[4 * j + 3] *= factor.y;
      }
      sync_warpgroup(1 + consumer);  // the tile is no longer read
      stage_fragment<kDim>(stage.x(), o, inverse[0], inverse[1], a.tokens.half);
      sync_warpgroup(1 + consumer);
      store_tile<kDim>(stage.x(), a.out, out, first_token, a.tokens.length);
    });
    if (threadIdx.x % 32 == 0) arrive(block.released);
  });
}

/// What belongs to an item: W and S in tiles, scales with biases, factors of columns.
template <int kDim>
__device__ void produce(const OutputArguments& a, const StayingBlock<OutputShape<kDim>>& block,
                        int* reached) {
  const OutputShape<kDim>& shape = block.shape;
  const int thread = static_cast<int>(threadIdx.x);
  auto* column = reinterpret_cast<float*>(block.shared + shape.column);
  auto* factor = reinterpret_cast<float*>(block.shared + shape.factor);
  block.produce(a, [&](std::int64_t head, std::int64_t state, bool fresh) {
    bool any = false;
    for (int r = thread; r < a.slices * kRows; r += 128) {
      const float c = a.column[state * a.slices * kRows + r];
      any |= c > -INFINITY;
      column[r] = c + a.projection.bias[head * a.slices * kRows + r];
    }
    for (int e = thread; e < kDim; e += 128) factor[e] = a.factor[state * kDim + e];
    any = __any_sync(~0U, any);
    if (thread % 32 == 0) reached[thread / 32] = any ? 1 : 0;
    __syncwarp();
    if (thread == 0) {
      const std::uint32_t sums = a.slices * SumTile<kDim>::kBytes;
      arrive_expecting(block.loaded, sums + (fresh ? 2 * shape.weights : 0));
      if (fresh) {
        const std::int64_t from = head * a.slices * (Tile<kDim>::kBytes / 2);
        bulk_load(block.shared, a.projection.high + from, shape.weights, block.loaded);
        bulk_load(block.shared + shape.weights, a.projection.low + from, shape.weights,
                  block.loaded);
      }
      bulk_load(block.shared + shape.sums, a.tiles + state * a.slices * (SumTile<kDim>::kBytes / 2),
                sums, block.loaded);
    } else if (thread % 32 == 0) {
      arrive(block.loaded);
    }
  });
}

template <int kDim>
__global__ void __launch_bounds__(OutputShape<kDim>::kThreads, 1)
    output_kernel(const __grid_constant__ OutputArguments a) {
  extern __shared__ char memory[];
  char* shared = memory + (-shared_address(memory) & 1023);
  const OutputShape<kDim> shape(a.slices);
  const RingBarriers barriers(shared + shape.barriers, shape.ring_shape.stages);
  Barrier* loaded = barriers.end(shape.ring_shape.stages);
  Barrier* released = loaded + 1;
  int* reached = reinterpret_cast<int*>(released + 1);
  if (threadIdx.x == 0) {
    barriers.initialise(shape.ring_shape.stages, 1, 4);
    init(loaded, 4);
    init(released, 4 * OutputShape<kDim>::kConsumers);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<OutputShape<kDim>::kProducer>();
    produce<kDim>(a, StayingBlock<OutputShape<kDim>>{shape, shared, barriers, loaded, released},
                  reached);
  } else {
    take_registers<OutputShape<kDim>::kConsumer>();
    consume<kDim>(a, StayingBlock<OutputShape<kDim>>{shape, shared, barriers, loaded, released},
                  reached);
  }
}

template <int kDim>
cudaError_t launch_output(const OutputArguments& a, int multiprocessors, cudaStream_t stream) {
  using Shape = OutputShape<kDim>;
  const Grid grid{staying_blocks(a.items, a.tokens.length, multiprocessors), Shape::kThreads,
                  Shape(a.slices).shared};
  return launch(output_kernel<kDim>, grid, stream, a);
}

}  // namespace

bool output_fits(int dim, int slices) {
  bool fits = false;
  with_value<32, 64, 128>(dim, [&](auto width) {
    fits = OutputShape<width()>(slices).ring_shape.works();
    return cudaSuccess;
  });
  return fits;
}

cudaError_t write_output(const OutputArguments& a, int dim, int multiprocessors,
                         cudaStream_t stream) {
  return with_value<32, 64, 128>(
      dim, [&](auto width) { return launch_output<width()>(a, multiprocessors, stream); });
}

}  // namespace performer::kernels::cuda::hopper
