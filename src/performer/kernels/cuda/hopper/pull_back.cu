#include "performer/kernels/cuda/hopper/pull_back.h"

#include <type_traits>

#include "performer/kernels/cuda/common/dispatch.h"
#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/hopper/staying.cuh"

// Warpgroups own 64 tokens each. Slice by slice of 64 features: U = X W^T and E = Y T^T (T = S / z
// or dS), P = 2^U and F = P E in registers, and straight back as the left operands of dX += F W and
// dY += P T.
namespace performer::kernels::cuda::hopper {
namespace {

/// What one launch computes. 128-wide fragments of dX and dY do not fit in registers together, so
/// that rows of that width go uncorrected.
enum class Writes { kX, kY, kBoth };

template <int kWidth, Kind kOf, Writes kWrites>
struct PullBackShape {
  static constexpr int kDim = kWidth;
  static constexpr Kind kKind = kOf;
  using StageType = Stage<kDim, kKind>;
  static constexpr bool kX = kWrites != Writes::kY, kY = kWrites != Writes::kX;
  static constexpr bool kStoresY = kY && kKind == Kind::kKeys;
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kProducer = kKind == Kind::kRows || kDim < 128 ? 120 : 88;
  static constexpr int kConsumer = kKind == Kind::kRows || kDim < 128 ? 192 : 208;
  // Keys multiply with what dS lost in rounding too; 128-wide tiles of it do not fit.
  static constexpr bool kLowSums = kKind == Kind::kKeys && kX && kDim < 128;
  int weights, tiles, low_tiles, column, normalizer, ring, barriers, shared;
  RingShape ring_shape;

  __host__ __device__ explicit PullBackShape(int slices)
      : weights(slices * Tile<kDim>::kBytes),
        tiles(3 * weights),
        low_tiles(4 * weights),
        column((kLowSums ? 5 : 4) * weights),
        normalizer(column + slices * kRows * 4),
        ring((normalizer + slices * kRows * 4 + 1023) / 1024 * 1024),
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

/// Large terms are added last, in the order of the forward pass: the same roundings.
template <Kind kKind>
__device__ inline void add_terms(float (&u)[32], const float* column, const float (&term)[2]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const float2 c = *reinterpret_cast<const float2*>(column + 8 * (i / 4));
    const float of_column = i % 2 == 0 ? c.x : c.y, of_row = term[i / 2 % 2];
    u[i] = kKind == Kind::kRows ? (u[i] + of_column) + of_row : (u[i] + of_row) + of_column;
  }
}

/// P = 2^U and F = P E as left operands, and the sums of the rows' slopes.
template <class Shape>
__device__ inline void weigh(std::uint32_t (&p)[16], std::uint32_t (&f)[16], float (&slope_sum)[2],
                             const float (&u)[32], const float (&e)[32]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float p0 = exp2_fast(u[2 * i]), p1 = exp2_fast(u[2 * i + 1]);
    if constexpr (Shape::kY) p[i] = pack_bf16(p0, p1);
    if constexpr (Shape::kX) {
      const float f0 = p0 * e[2 * i], f1 = p1 * e[2 * i + 1];
      slope_sum[i % 2] += f0 + f1;
      f[i] = pack_bf16(f0, f1);
    }
  }
}

/// E begins with what does not depend on S: dz of the features, or -along of the rows.
template <class Shape>
__device__ inline void begin_slopes(float (&e)[32], const float* normalizer,
                                    const float (&weight)[2]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if constexpr (Shape::kX && Shape::kKind == Kind::kKeys) {
      const float2 z = *reinterpret_cast<const float2*>(normalizer + 8 * j);
      e[4 * j] = e[4 * j + 2] = z.x, e[4 * j + 1] = e[4 * j + 3] = z.y;
    } else {
      e[4 * j] = e[4 * j + 1] = weight[0], e[4 * j + 2] = e[4 * j + 3] = weight[1];
    }
  }
  if constexpr (Shape::kX) settle(e);
}

template <int kDim, Kind kKind, Writes kWrites>
__device__ void consume(const PullBackArguments& a,
                        const StayingBlock<PullBackShape<kDim, kKind, kWrites>>& block) {
  using Shape = PullBackShape<kDim, kKind, kWrites>;
  const Shape& shape = block.shape;
  constexpr int kSteps = kDim / 16;
  const int consumer = warpgroup() - 1;
  const Place place;
  const std::uint32_t base = shared_address(block.shared);
  const auto* column = reinterpret_cast<const float*>(block.shared + shape.column) + place.column;
  const auto* normalizer =
      reinterpret_cast<const float*>(block.shared + shape.normalizer) + place.column;
  std::uint32_t parity = 0;
  Piece::for_each(a.items, a.tokens.length, [&](Piece piece) {
    wait(block.loaded, parity);
    parity ^= 1;
    block.visit_tiles(piece, consumer, [&](const auto& stage, std::int64_t first_token) {
      const std::uint32_t y = shared_address(stage.y());
      const std::uint32_t x = shared_address(stage.x());
      Fragment<kDim> tokens;  // of 128 columns it has no room in registers
      if constexpr (kDim < 128) tokens.load(x);
      const float term[2] = {stage.terms()[place.row], stage.terms()[place.row + 8]};
      float weight[2] = {0, 0};
      if constexpr (kKind == Kind::kRows) {
        weight[0] = stage.weights()[place.row], weight[1] = stage.weights()[place.row + 8];
      }
      // Rows: dy is P W, what dx is corrected with.
      float dx[Shape::kX ? kDim / 2 : 1], dy[Shape::kY ? kDim / 2 : 1];
#pragma unroll
      for (float& v : dx) v = 0;
#pragma unroll
      for (float& v : dy) v = 0;
      float slope_sum[2] = {0, 0};
#pragma unroll 1
      for (int slice = 0; slice < a.slices; ++slice) {
        const std::uint32_t high = base + slice * Tile<kDim>::kBytes;
        const std::uint32_t low = high + shape.weights, plain = low + shape.weights;
        const std::uint32_t sums = plain + shape.weights, low_sums = sums + shape.weights;
        float u[32], e[32];
        begin_slopes<Shape>(e, normalizer + slice * kRows, weight);
        const auto project = [&](auto half) {
          mma_fence();
          if constexpr (kDim == 128) {
            multiply_tiles<half.value, kDim>(u, x, low, false);
            multiply_tiles<half.value, kDim>(u, x, high, true);
          } else {
            multiply<half.value>(u, tokens, low, false);
            multiply<half.value>(u, tokens, high, true);
          }
          if constexpr (Shape::kX) {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
              if constexpr (Shape::kLowSums) {
                mma_bf16(e, Tile<kDim>::depth_major(y, step),
                         Tile<kDim>::depth_major(low_sums, step), true);
              }
              mma_bf16(e, Tile<kDim>::depth_major(y, step), Tile<kDim>::depth_major(sums, step),
                       true);
            }
          }
          mma_commit();
          mma_wait<0>();
        };
        if (a.tokens.half) {
          project(std::true_type{});
        } else {
          project(std::false_type{});
        }
        add_terms<kKind>(u, column + slice * kRows, term);
        std::uint32_t p[16], f[16];
        weigh<Shape>(p, f, slope_sum, u, e);
        mma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          if constexpr (Shape::kX) {
            mma_rows(dx, f + 4 * step, Tile<kDim>::row_major(plain, step), true);
          }
          if constexpr (Shape::kY) {
            mma_rows(dy, p + 4 * step,
                     Tile<kDim>::row_major(kKind == Kind::kRows ? plain : sums, step), true);
          }
        }
        mma_commit();
        mma_wait<0>();
      }
      slope_sum[0] = quad_sum(slope_sum[0]), slope_sum[1] = quad_sum(slope_sum[1]);

      if constexpr (kKind == Kind::kRows && Shape::kY) {
#pragma unroll
        for (int i = 0; i < kDim / 2; ++i) dx[i] -= slope_sum[i / 2 % 2] * dy[i];
      }
      if constexpr (kKind == Kind::kRows) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const std::int64_t token = first_token + place.row + 8 * h;
          if (place.column == 0 && token < a.tokens.length) {
            a.along[piece.item * a.tokens.length + token] = slope_sum[h] - weight[h];
          }
        }
      }
      if constexpr (kKind == Kind::kKeys && Shape::kX) {
        // log phi holds -scale |k|^2 / 2.
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float factor = a.norm * slope_sum[h];
#pragma unroll
          for (int j = 0; j < kDim / 8; ++j) {
            const float2 k =
                unpack(*reinterpret_cast<const std::uint32_t*>(
                           stage.x() + Tile<kDim>::offset(place.row + 8 * h, j) + 2 * place.column),
                       a.tokens.half);
            dx[4 * j + 2 * h] -= factor * k.x;
            dx[4 * j + 2 * h + 1] -= factor * k.y;
          }
        }
      }
      sync_warpgroup(1 + consumer);  // the tiles are no longer read
      if constexpr (Shape::kX) stage_fragment<kDim>(stage.x(), dx, 1, 1, a.tokens.half);
      if constexpr (Shape::kStoresY) stage_fragment<kDim>(stage.y(), dy, 1, 1, a.tokens.half);
      sync_warpgroup(1 + consumer);
      const std::int64_t n = piece.item / a.tokens.heads, head = piece.item % a.tokens.heads;
      if constexpr (Shape::kX) {
        store_tile<kDim>(stage.x(), a.x, a.x.data + n * a.x.batch + head * a.x.head, first_token,
                         a.tokens.length);
      }
      if constexpr (Shape::kStoresY) {
        store_tile<kDim>(stage.y(), a.y, a.y.data + n * a.y.batch + head * a.y.head, first_token,
                         a.tokens.length);
      }
    });
    if (threadIdx.x % 32 == 0) arrive(block.released);
  });
}

/// What belongs to an item: W and S or dS in tiles, scales with biases, dz.
template <int kDim, Kind kKind, Writes kWrites>
__device__ void produce(const PullBackArguments& a,
                        const StayingBlock<PullBackShape<kDim, kKind, kWrites>>& block) {
  using Shape = PullBackShape<kDim, kKind, kWrites>;
  const Shape& shape = block.shape;
  const int thread = static_cast<int>(threadIdx.x);
  auto* column = reinterpret_cast<float*>(block.shared + shape.column);
  auto* normalizer = reinterpret_cast<float*>(block.shared + shape.normalizer);
  block.produce(a, [&](std::int64_t head, std::int64_t state, bool fresh) {
    const int wide = a.slices * kRows;
    for (int r = thread; r < wide; r += 128) {
      const float c = a.column[state * wide + r];
      const float bias = a.projection.bias[head * wide + r];
      column[r] = bias == -INFINITY ? bias : bias + c;
      if constexpr (kKind == Kind::kKeys) normalizer[r] = a.normalizer[state * wide + r];
    }
    __syncwarp();
    if (thread == 0) {
      const auto load = [&](int to, const std::uint16_t* from) {
        bulk_load(block.shared + to, from, shape.weights, block.loaded);
      };
      arrive_expecting(block.loaded, ((fresh ? 4 : 1) + (Shape::kLowSums ? 1 : 0)) * shape.weights);
      constexpr int kElements = Tile<kDim>::kBytes / 2;
      if (fresh) {
        const std::int64_t from = head * a.slices * kElements;
        load(0, a.projection.high + from);
        load(shape.weights, a.projection.low + from);
        load(2 * shape.weights, a.projection.plain + from);
      }
      const std::int64_t from = state * a.slices * kElements;
      load(shape.tiles, a.tiles + from);
      if constexpr (Shape::kLowSums) load(shape.low_tiles, a.low + from);
    } else if (thread % 32 == 0) {
      arrive(block.loaded);
    }
  });
}

template <int kDim, Kind kKind, Writes kWrites>
__global__ void __launch_bounds__(PullBackShape<kDim, kKind, kWrites>::kThreads, 1)
    pull_back_kernel(const __grid_constant__ PullBackArguments a) {
  using Shape = PullBackShape<kDim, kKind, kWrites>;
  extern __shared__ char memory[];
  char* shared = memory + (-shared_address(memory) & 1023);
  const Shape shape(a.slices);
  const RingBarriers barriers(shared + shape.barriers, shape.ring_shape.stages);
  Barrier* loaded = barriers.end(shape.ring_shape.stages);
  Barrier* released = loaded + 1;
  if (threadIdx.x == 0) {
    barriers.initialise(shape.ring_shape.stages, 32, 4);
    init(loaded, 4);
    init(released, 4 * Shape::kConsumers);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<Shape::kProducer>();
    produce<kDim, kKind, kWrites>(a,
                                  StayingBlock<Shape>{shape, shared, barriers, loaded, released});
  } else {
    take_registers<Shape::kConsumer>();
    consume<kDim, kKind, kWrites>(a,
                                  StayingBlock<Shape>{shape, shared, barriers, loaded, released});
  }
}

template <int kDim, Kind kKind, Writes kWrites>
cudaError_t launch_pull_back(const PullBackArguments& a, int multiprocessors, cudaStream_t stream) {
  using Shape = PullBackShape<kDim, kKind, kWrites>;
  const Grid grid{staying_blocks(a.items, a.tokens.length, multiprocessors), Shape::kThreads,
                  Shape(a.slices).shared};
  return launch(pull_back_kernel<kDim, kKind, kWrites>, grid, stream, a);
}

template <int kDim, Kind kKind, Writes kWrites>
bool has_room(int slices) {
  return PullBackShape<kDim, kKind, kWrites>(slices).ring_shape.works();
}

}  // namespace

bool pull_back_fits(int dim, int slices) {
  bool fits = false;
  with_value<32, 64, 128>(dim, [&](auto width) {
    if constexpr (width() == 128) {
      fits = has_room<128, Kind::kRows, Writes::kX>(slices);
    } else {
      fits = has_room<width(), Kind::kRows, Writes::kBoth>(slices) &&
             has_room<width(), Kind::kKeys, Writes::kBoth>(slices);
    }
    return cudaSuccess;
  });
  return fits;
}

cudaError_t pull_back_rows(const PullBackArguments& a, int dim, int multiprocessors,
                           cudaStream_t stream) {
  return with_value<32, 64, 128>(dim, [&](auto width) {
    constexpr Writes kWrites = width() == 128 ? Writes::kX : Writes::kBoth;
    return launch_pull_back<width(), Kind::kRows, kWrites>(a, multiprocessors, stream);
  });
}

cudaError_t pull_back_keys(const PullBackArguments& a, int dim, int multiprocessors,
                           cudaStream_t stream) {
  return with_value<32, 64, 128>(dim, [&](auto width) {
    if constexpr (width() == 128) {
      const cudaError_t error =
          launch_pull_back<128, Kind::kKeys, Writes::kX>(a, multiprocessors, stream);
      if (error != cudaSuccess) return error;
      return launch_pull_back<128, Kind::kKeys, Writes::kY>(a, multiprocessors, stream);
    } else {
      return launch_pull_back<width(), Kind::kKeys, Writes::kBoth>(a, multiprocessors, stream);
    }
  });
}

}  // namespace performer::kernels::cuda::hopper
