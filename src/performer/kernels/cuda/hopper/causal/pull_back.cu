#include "performer/kernels/cuda/hopper/causal/kernel.cuh"
#include "performer/kernels/cuda/hopper/causal/read.cuh"

// The reading warpgroup of dq and dk: 64 tokens are rows. With the carried values y_j, those of the
// reading tokens y_i (grad_out or v) and D = grad_out . out of the pair's query,
//   dA_ij = y_i . y_j - D where j comes before i, once a chunk;
// then slice by slice, with p_r the feature of the token:
//   e_r = y_i . S_r + weight_i z_r + sum_j dA_ij phi_jr,  f_r = p_r e_r,  dx += f W.
// weight is -D for rows and 1 for keys, whose z sums -D. Sums of a row's slopes f must be 0 but for
// what out lost in rounding: D is corrected by it for the passes that follow.
namespace performer::kernels::cuda::hopper {
namespace {

template <int kDim, int kOwned, bool kIsHalf>
struct PullReader {
  static constexpr bool kPulls = true, kHalf = kIsHalf;
  static constexpr Kind kReading = Kind::kRows;
  static constexpr int kProducer = 56, kCarrier = 144, kReader = 168;
  static constexpr int kSlices = kGroups * kOwned;

  __host__ __device__ static ScanLayout<kDim> layout(const ScanArguments& a) {
    return {kSlices, one_side(a), kHalf};
  }

  __device__ static void read(const ScanArguments& a, const ScanLayout<kDim>& layout,
                              const ScanBlock& block) {
    const RowWriter<kDim> writer(a, layout, block);
    std::uint32_t unit_parity = 0;  // of the next slice's buffers
    const int tiles = uniform(block.tiles);
    wait(ScanBarriers::weights(), 0);
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      const ReadingChunk<kDim> chunk(a, layout, block, t);
      const auto& [ring, stage, carried, first_token] = chunk;
      const std::uint32_t x = shared_address(stage.x());
      wait(ScanBarriers::carried().full + ring.stage, ring.parity);
      std::uint32_t slopes[16];
      compare(a, stage, carried, slopes);
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(ScanBarriers::carried().empty + ring.stage);
      float term[2];
      {
        const int row = Place(thread_again()).row;
        term[0] = stage.terms()[row], term[1] = stage.terms()[row + 8];
      }
      ScanPiece piece{0, 0};
#pragma unroll 1
      do {
        float dx[kDim / 2], slope_sum[2] = {0, 0};
        float u[2][16], e[2][16];
        std::uint32_t f[2][8];
        // U = X W^T and E, which begins with weight z, of 32 features.
        const auto begin_block = [&](const ScanUnit<kDim>& unit, int half) {
          const Place place(thread_again());
          const float* z = unit.normalizers() + half * 32 + place.column;
          float weight[2] = {1, 1};
          if (!a.reverse) {
            weight[0] = stage.weights()[place.row], weight[1] = stage.weights()[place.row + 8];
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float2 pair = *reinterpret_cast<const float2*>(z + 8 * j);
            e[half][4 * j] = weight[0] * pair.x, e[half][4 * j + 1] = weight[0] * pair.y;
            e[half][4 * j + 2] = weight[1] * pair.x, e[half][4 * j + 3] = weight[1] * pair.y;
          }
          settle(e[half]);
        };
        const auto project = [&](const ScanUnit<kDim>& unit, int slice, int half) {
          const std::uint32_t high = shared_address(scan_memory()) + layout.reading_w +
                                     slice * Tile<kDim>::kBytes + half * 32 * Tile<kDim>::kRowBytes;
          const std::uint32_t y = shared_address(stage.y());
          const std::uint32_t sums = shared_address(unit.sums()) + half * 64;
          const std::uint32_t low_sums = shared_address(unit.low_sums()) + half * 64;
          const std::uint32_t features = shared_address(unit.features()) + half * 64;
          multiply_tiles<kHalf, kDim>(u[half], x, high + layout.weights, false);
          multiply_tiles<kHalf, kDim>(u[half], x, high, true);
#pragma unroll
          for (int step = 0; step < kDim / 16; ++step) {
            const std::uint64_t values = Tile<kDim>::depth_major(y, step);
            mma_rows(e[half], values, Tile<64>::row_major(low_sums, step), true);
            mma_rows(e[half], values, Tile<64>::row_major(sums, step), true);
          }
#pragma unroll
          for (int step = 0; step < 4; ++step) {
            mma_rows(e[half], slopes + 4 * step, Tile<64>::row_major(features, step), true);
          }
        };
        wait(ScanBarriers::unit_full(0), unit_parity);
        piece = ScanBarriers::piece(0);
        begin_block(layout.unit(0), 0);
        begin_block(layout.unit(0), 1);
        mma_fence();
        project(layout.unit(0), 0, 0);
        project(layout.unit(0), 0, 1);
        mma_commit();
#pragma unroll
        for (float& v : dx) v = 0;
        mma_wait<0>();
#pragma unroll 1
        for (int slice = 0; slice < kSlices; ++slice) {
          const int group = slice % kGroups;
          const auto unit = layout.unit(group), next = layout.unit(1 - group);
          if (group == kGroups - 1) unit_parity ^= 1;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            settle(u[half]);
            settle(e[half]);
            const float* scales = unit.scales() + half * 32 + thread_again() % 4 * 2;
#pragma unroll
            for (int k = 0; k < 8; ++k) {
              const float2 c = *reinterpret_cast<const float2*>(scales + 8 * (k / 2));
              const float f0 = exp2_fast(u[half][2 * k] + (c.x + term[k % 2])) * e[half][2 * k];
              const float f1 =
                  exp2_fast(u[half][2 * k + 1] + (c.y + term[k % 2])) * e[half][2 * k + 1];
              slope_sum[k % 2] += f0 + f1;
              f[half][k] = pack_bf16(f0, f1);
            }
            mma_wait<0>();
            if (half == 1) {
              __syncwarp();
              if (threadIdx.x % 32 == 0) arrive(ScanBarriers::unit_empty(group));
            }
            const auto accumulate = [&] {
              const std::uint32_t plain = shared_address(scan_memory()) +
                                          (kHalf ? layout.plain : layout.reading_w) +
                                          slice * Tile<kDim>::kBytes;
#pragma unroll
              for (int step = 0; step < 2; ++step) {
                mma_rows(dx, f[half] + 4 * step, Tile<kDim>::row_major(plain, 2 * half + step),
                         true);
              }
              mma_commit();
            };
            if (slice + 1 < kSlices) {
              if (half == 0) wait(ScanBarriers::unit_full(1 - group), unit_parity);
              begin_block(next, half);
              mma_fence();
              project(next, slice + 1, half);
              accumulate();
            } else {
              mma_fence();
              accumulate();
            }
          }
        }
        mma_wait<0>();
        settle(dx);
        finish(a, block, stage, first_token, piece, slope_sum, dx);
        const int begin = a.reverse ? kRows - piece.end : piece.begin;
        writer.free_tile();
        writer.write(dx, 1, 1, first_token, begin, begin + piece.end - piece.begin);
      } while (piece.end < kRows);
      if (layout.stages == 1) writer.free_tile();
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(ScanBarriers::reading().empty + ring.stage);
    }
    if (threadIdx.x % 128 == 0) store_wait();
  }

 private:
  /// tril(y_i . y_j - D) as left operands.
  __device__ static void compare(const ScanArguments& a, const ScanStage<kDim>& stage,
                                 const ScanStage<kDim>& carried, std::uint32_t (&slopes)[16]) {
    const std::uint32_t rows = shared_address(stage.y()), columns = shared_address(carried.y());
    float products[32];
    mma_fence();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      mma_bf16(products, Tile<kDim>::depth_major(rows, step),
               Tile<kDim>::depth_major(columns, step), step != 0);
    }
    mma_commit();
    mma_wait<0>();
    settle(products);
    const Place place(thread_again());
    const int distance = place.row - place.column;
    if (a.reverse) {
      const float* weights = carried.weights() + place.column;
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        const float2 weight = *reinterpret_cast<const float2*>(weights + 8 * (k / 2));
        const int at = 8 * (k / 2) - 8 * (k % 2);
        slopes[k] = pack_bf16(at >= distance ? products[2 * k] + weight.x : 0,
                              at + 1 >= distance ? products[2 * k + 1] + weight.y : 0);
      }
    } else {
      const float weight[2] = {stage.weights()[place.row], stage.weights()[place.row + 8]};
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        const int at = 8 * (k / 2) - 8 * (k % 2);
        slopes[k] = pack_bf16(at <= distance ? products[2 * k] + weight[k % 2] : 0,
                              at + 1 <= distance ? products[2 * k + 1] + weight[k % 2] : 0);
      }
    }
  }

  /// Along is corrected by what slopes sum to; log phi of a key holds -scale |k|^2 / 2.
  __device__ static void finish(const ScanArguments& a, const ScanBlock& block,
                                const ScanStage<kDim>& stage, int first_token,
                                const ScanPiece& piece, float (&slope_sum)[2],
                                float (&dx)[kDim / 2]) {
    // W' holds log2(e), which plain does not.
    constexpr float kFactor = kHalf ? 1 : static_cast<float>(kLn2);
#pragma unroll
    for (float& v : dx) v *= kFactor;
    const Place place(thread_again());
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(slope_sum[h]);
      const int row = place.row + 8 * h, token = first_token + row;
      if (!a.reverse) {
        if (place.column == 0 && token < block.length && piece.holds(row, false)) {
          a.along[block.row(a) + token] = sum - stage.weights()[row];
        }
      } else if (a.norm != 0) {
        const float times = a.norm * sum;
#pragma unroll
        for (int j = 0; j < kDim / 8; ++j) {
          const float2 k = unpack<kHalf>(*reinterpret_cast<const std::uint32_t*>(
              stage.x() + Tile<kDim>::offset(row, j) + 2 * place.column));
          dx[4 * j + 2 * h] -= times * k.x;
          dx[4 * j + 2 * h + 1] -= times * k.y;
        }
      }
    }
  }
};

}  // namespace

cudaError_t scan_pull_back(const ScanArguments& a, int dim, cudaStream_t stream) {
  return choose_scan<PullReader>(a, dim, stream);
}

}  // namespace performer::kernels::cuda::hopper
