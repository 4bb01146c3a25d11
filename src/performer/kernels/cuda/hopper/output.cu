#include "performer/kernels/cuda/hopper/output.h"

#include "performer/kernels/cuda/hopper/turns.cuh"
#include "performer/kernels/cuda/hopper/walk.cuh"

// One producer warpgroup and three that own 64 queries each: U = Q W^T slice by slice, exp2 in
// registers, straight back as the left operand of O += P [S / z, 1]. A row's shift is the maximum
// of its first slice, raised where a later one is 2^8 above it.
namespace performer::kernels::cuda::hopper {
namespace {

constexpr int kConsumers = 3;
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kAhead = 2;  // tiles whose copies are under way
constexpr int kLargestShared = 232448;

template <int kDim>
struct OutputShape {
  using StageType = Stage<kDim, Kind::kQueries>;
  int weights, sums, column, factor, ring, barriers, shared,
      stages;  // bytes; offsets from the start

  __host__ __device__ explicit OutputShape(int slices)
      : weights(slices * Tile<kDim>::kBytes),
        sums(2 * weights),
        column(sums + slices * SumTile<kDim>::kBytes),
        factor(column + slices * kRows * 4),
        ring((factor + kDim * 4 + 1023) / 1024 * 1024),
        barriers(0),
        shared(0),
        stages((kLargestShared - 2048 - ring) / StageType::kBytes) {
    if (stages > 8) stages = 8;
    barriers = ring + stages * StageType::kBytes;
    shared = barriers + 1024 + 1024;
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

template <int kDim>
__device__ void consume(const OutputArguments& a, const OutputShape<kDim>& shape, char* shared,
                        Barrier* loaded, Barrier* released, Barrier* full, Barrier* empty,
                        const int* reached) {
  constexpr int kSteps = kDim / 16;
  const int consumer = static_cast<int>(threadIdx.x) / 128 - 1;
  const Place place;
  const std::uint32_t weights = shared_address(shared), sums = weights + shape.sums;
  const auto* column = reinterpret_cast<const float*>(shared + shape.column);
  const auto* factors = reinterpret_cast<const float*>(shared + shape.factor) + place.column;
  Ring ring{shape.stages};
  ring.advance(consumer);
  int turn = 0;  // the consumer of the piece's first tile
  std::uint32_t parity = 0;
  const Turns turns(kConsumers, consumer);
  const int rounds = (Piece::count(a.items, a.tokens.length) + kConsumers - 1) / kConsumers;
  int done = 0;  // tiles of this consumer
  Piece::for_each(a.items, a.tokens.length, [&](Piece piece) {
    wait(loaded, parity);
    parity ^= 1;
    const std::int64_t n = piece.item / a.tokens.heads, head = piece.item % a.tokens.heads;
    std::uint16_t* out = a.out.data + n * a.out.batch + head * a.out.head;
    const int mine = (consumer - turn + kConsumers) % kConsumers;
    turn = static_cast<int>((turn + piece.end - piece.begin) % kConsumers);
    for (std::int64_t tile = piece.begin + mine; tile < piece.end;
         tile += kConsumers, ring.advance(kConsumers)) {
      const typename OutputShape<kDim>::StageType stage{
          shared + shape.ring + ring.stage * OutputShape<kDim>::StageType::kBytes};
      wait(full + ring.stage, ring.parity);
      const std::uint32_t x = shared_address(stage.x());
      const bool exact = stage.exact();
      float o[SumTile<kDim>::kColumns / 2];
      float shift[2] = {0, 0};
#pragma unroll
      for (float& x : o) x = 0;
#pragma unroll 1
      for (int slice = 0; slice < a.slices; ++slice) {
        const std::uint32_t high = weights + slice * Tile<kDim>::kBytes;
        const std::uint32_t low = high + shape.weights;
        float u[32];
        const auto added = [&](int j) {
          return *reinterpret_cast<const float2*>(column + slice * kRows + 8 * j + place.column);
        };
        if (exact) {
#pragma unroll
          for (float& v : u) v = 0;
          turns.take();
          mma_fence();
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            mma_f16(u, Tile<kDim>::depth_major(x, step), Tile<kDim>::depth_major(low, step), true);
          }
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            mma_f16(u, Tile<kDim>::depth_major(x, step), Tile<kDim>::depth_major(high, step), true);
          }
          mma_commit();
          turns.pass();
          mma_wait<0>();
          // Large scales are added last: one rounding.
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const float2 c = added(j);
            u[4 * j] += c.x, u[4 * j + 1] += c.y, u[4 * j + 2] += c.x, u[4 * j + 3] += c.y;
          }
        } else {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const float2 c = added(j);
            u[4 * j] = u[4 * j + 2] = c.x, u[4 * j + 1] = u[4 * j + 3] = c.y;
          }
          settle(u);
          turns.take();
          mma_fence();
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            mma_f16(u, Tile<kDim>::depth_major(x, step), Tile<kDim>::depth_major(high, step), true);
          }
          mma_commit();
          turns.pass();
          mma_wait<0>();
        }
        std::uint32_t p[16];
        const auto make_weights = [&] {
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            p[i] = pack_f16(exp2(u[2 * i] - shift[i % 2]), exp2(u[2 * i + 1] - shift[i % 2]));
          }
        };
        const bool first = slice == 0;
        if (!first) make_weights();
        if (first || __any_sync(~0U, exceeds(p))) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float top = -INFINITY;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
              top = fmaxf(top, fmaxf(u[4 * j + 2 * h], u[4 * j + 2 * h + 1]));
            }
            const float needed = fminf(fmaxf(ceilf(quad_max(top)), 2 * kEmptyScale), -kEmptyScale);
            if (first || needed > shift[h]) {
              const float factor = first ? 1 : exp2(shift[h] - needed);
              shift[h] = needed;
#pragma unroll
              for (int j = 0; j < SumTile<kDim>::kColumns / 8; ++j) {
                o[4 * j + 2 * h] *= factor;
                o[4 * j + 2 * h + 1] *= factor;
              }
            }
          }
          make_weights();
        }
        turns.take();
        mma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          mma_depth(o, p + 4 * step,
                    SumTile<kDim>::descriptor(sums + slice * SumTile<kDim>::kBytes, step), true);
        }
        mma_commit();
        const bool last = slice + 1 == a.slices && ++done == rounds;
        turns.pass_but_last(last);
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
        const std::int64_t token = tile * kRows + place.row + 8 * h;
        if (place.column == 0 && token < a.tokens.length) {
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
      store_tile<kDim>(stage.x(), a.out, out, tile * kRows, a.tokens.length);
      fence_async();  // the next copy into the stage is not an ordinary write
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(empty + ring.stage);
    }
    if (threadIdx.x % 32 == 0) arrive(released);
  });
  if (done < rounds) {  // a last round without a tile for this consumer
    for (int slice = 0; slice < a.slices; ++slice) {
      turns.take(), turns.pass();
      turns.take(), turns.pass_but_last(slice + 1 == a.slices);
    }
  }
}

template <int kDim>
__device__ void produce(const OutputArguments& a, const OutputShape<kDim>& shape, char* shared,
                        Barrier* loaded, Barrier* released, Barrier* full, Barrier* empty,
                        Barrier* raw, int* reached) {
  const int thread = static_cast<int>(threadIdx.x);
  auto* column = reinterpret_cast<float*>(shared + shape.column);
  auto* factor = reinterpret_cast<float*>(shared + shape.factor);
  const auto stage = [&](const Ring& ring) {
    return typename OutputShape<kDim>::StageType{shared + shape.ring +
                                                 ring.stage * OutputShape<kDim>::StageType::kBytes};
  };
  Ring copied{shape.stages}, finished{shape.stages};
  std::uint32_t parity = 1;
  std::int64_t packed = -1;  // the head whose W is here
  Piece::for_each(a.items, a.tokens.length, [&](Piece piece) {
    const int heads = a.tokens.heads;
    const std::int64_t head = piece.item % heads / (heads / a.projection.heads);
    const std::int64_t state =
        piece.item / heads * a.state_heads + piece.item % heads / (heads / a.state_heads);
    float square = 0;
    for (int s = 0; s < a.slices * kSquares; ++s) {
      square = fmaxf(square, a.projection.square[head * a.slices * kSquares + s]);
    }
    const Producer<kDim, Kind::kQueries> producer(a.tokens, piece.item, kRoundingLimit / square);
    // The first tiles come while the last item's are still worked on.
    const std::int64_t ready =
        packed < 0 ? piece.begin + 1 : min(piece.end, piece.begin + shape.stages - kAhead);
#pragma unroll 1
    for (std::int64_t tile = piece.begin - kAhead; tile < piece.end; ++tile) {
      if (tile + kAhead < piece.end) {
        producer.begin((tile + kAhead) * kRows, stage(copied), empty + copied.stage,
                       copied.parity ^ 1, raw + copied.stage);
        copied.advance();
      }
      if (tile < piece.begin) continue;
      producer.finish(tile * kRows, stage(finished), raw + finished.stage, finished.parity,
                      full + finished.stage);
      finished.advance();
      if (tile + 1 != ready) continue;
      wait(released, parity);
      parity ^= 1;
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
        const bool fresh = head != packed;
        arrive_expecting(loaded, sums + (fresh ? 2 * shape.weights : 0));
        if (fresh) {
          const std::int64_t from = head * a.slices * (Tile<kDim>::kBytes / 2);
          bulk_load(shared, a.projection.high + from, shape.weights, loaded);
          bulk_load(shared + shape.weights, a.projection.low + from, shape.weights, loaded);
        }
        bulk_load(shared + shape.sums, a.tiles + state * a.slices * (SumTile<kDim>::kBytes / 2),
                  sums, loaded);
      } else if (thread % 32 == 0) {
        arrive(loaded);
      }
      packed = head;
    }
  });
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    output_kernel(const __grid_constant__ OutputArguments a) {
  extern __shared__ char memory[];
  char* shared = memory + (-shared_address(memory) & 1023);
  const OutputShape<kDim> shape(a.slices);
  auto* full = reinterpret_cast<Barrier*>(shared + shape.barriers);
  Barrier* empty = full + shape.stages;
  Barrier* raw = empty + shape.stages;
  Barrier* loaded = raw + shape.stages;
  Barrier* released = loaded + 1;
  int* reached = reinterpret_cast<int*>(released + 1);
  if (threadIdx.x == 0) {
    for (int s = 0; s < shape.stages; ++s) {
      init(full + s, 4);
      init(empty + s, 4);
      init(raw + s, 1);
    }
    init(loaded, 4);
    init(released, 4 * kConsumers);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<96>();
    produce<kDim>(a, shape, shared, loaded, released, full, empty, raw, reached);
  } else {
    take_registers<136>();
    consume<kDim>(a, shape, shared, loaded, released, full, empty, reached);
  }
}

template <int kDim>
cudaError_t launch(const OutputArguments& a, int multiprocessors, cudaStream_t stream) {
  const OutputShape<kDim> shape(a.slices);
  const auto kernel = output_kernel<kDim>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared);
  if (error != cudaSuccess) return error;
  const std::int64_t tiles = a.items * ((a.tokens.length + kRows - 1) / kRows);
  const auto blocks = static_cast<unsigned>(tiles < multiprocessors ? tiles : multiprocessors);
  kernel<<<blocks, kThreads, shape.shared, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

bool output_fits(int dim, int slices) {
  switch (dim) {
    case 32:
      return OutputShape<32>(slices).stages > kConsumers;
    case 64:
      return OutputShape<64>(slices).stages > kConsumers;
    default:
      return OutputShape<128>(slices).stages > kConsumers;
  }
}

cudaError_t write_output(const OutputArguments& a, int dim, int multiprocessors,
                         cudaStream_t stream) {
  switch (dim) {
    case 32:
      return launch<32>(a, multiprocessors, stream);
    case 64:
      return launch<64>(a, multiprocessors, stream);
    case 128:
      return launch<128>(a, multiprocessors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace performer::kernels::cuda::hopper
