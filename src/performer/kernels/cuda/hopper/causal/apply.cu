#include "performer/kernels/cuda/hopper/causal/kernel.cuh"
#include "performer/kernels/cuda/hopper/causal/read.cuh"

// The reading warpgroup of out and dv: 64 tokens are rows. By 32 features at a time U = X W^T,
// P = 2^U in registers, and straight back as the left operand of O += P [S, z] and A += P Phi^T;
// then O += tril(A) [Y, side]. While one block's exponentials are taken, the next one's U and the
// last one's products are under way.
namespace performer::kernels::cuda::hopper {
namespace {

/// Weights are at most 1 when a row's shift is chosen. Later ones may be up to this.
constexpr float kMostWeight = 0x1p16F;

__device__ inline bool exceeds(const std::uint32_t (&p)[8]) {
  const auto pair = [&](int i) { return *reinterpret_cast<const __nv_bfloat162*>(&p[i]); };
  __nv_bfloat162 top = __hmax2(pair(0), pair(1));
#pragma unroll
  for (int i = 2; i < 8; ++i) top = __hmax2(top, pair(i));
  return fmaxf(__low2float(top), __high2float(top)) > kMostWeight;
}

template <int kDim, int kOwned, bool kIsHalf>
struct ApplyReader {
  static constexpr bool kPulls = false, kHalf = kIsHalf;
  static constexpr Kind kReading = Kind::kQueries;
  static constexpr int kProducer = 56, kCarrier = 144, kReader = 168;
  static constexpr int kColumns = SumTile<kDim>::kColumns;
  static constexpr int kSlices = kGroups * kOwned;

  __host__ __device__ static ScanLayout<kDim> layout(const ScanArguments& a) {
    return {kSlices, one_side(a), false};
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
      Fragment<kDim> tokens;
      tokens.load(shared_address(stage.x()));
      float term[2] = {0, 0};
      if (a.reverse) {
        const int row = Place(thread_again()).row;
        term[0] = stage.terms()[row], term[1] = stage.terms()[row + 8];
      }
      bool held = true;  // the stage
      ScanPiece piece{0, 0};
#pragma unroll 1
      do {
        float o[kColumns / 2], scores[32], shift[2] = {0, 0};
        float u[2][16];
        std::uint32_t p[2][8];
        const auto project = [&](int slice, int half) {
          const std::uint32_t high = shared_address(scan_memory()) + layout.reading_w +
                                     slice * Tile<kDim>::kBytes + half * 32 * Tile<kDim>::kRowBytes;
          multiply<kHalf>(u[half], tokens, high + layout.weights, false);
          multiply<kHalf>(u[half], tokens, high, true);
        };
        mma_fence();
        project(0, 0);
        project(0, 1);
        mma_commit();
#pragma unroll
        for (float& v : o) v = 0;
#pragma unroll
        for (float& v : scores) v = 0;
        mma_wait<0>();
#pragma unroll 1
        for (int slice = 0; slice < kSlices; ++slice) {
          const int group = slice % kGroups;
          const auto unit = layout.unit(group);
          wait(ScanBarriers::unit_full(group), unit_parity);
          if (group == kGroups - 1) unit_parity ^= 1;
          if (slice == 0) piece = ScanBarriers::piece(0);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            settle(u[half]);
            weigh(a, unit, half, slice == 0, term, shift, u[half], p[half]);
            mma_wait<0>();
            if (half == 0 && slice > 0 && threadIdx.x % 32 == 0) {
              arrive(ScanBarriers::unit_empty(1 - group));  // of the slice before
            }
            // By now products were made of the stage: it has arrived in registers. A lone stage
            // lends its y.
            if (held && layout.stages > 1) {
              if (threadIdx.x % 32 == 0) arrive(ScanBarriers::reading().empty + ring.stage);
              held = false;
            }
            const bool first = slice == 0 && half == 0;
            if (!first && __any_sync(~0U, !a.reverse && exceeds(p[half]))) [[unlikely]] {
              settle(o);
              settle(scores);
              raise_shifts(u[half], p[half], shift, o, scores);
            }
            const auto accumulate = [&] {
              const std::uint32_t sums = shared_address(unit.sums());
              const std::uint32_t low_sums = shared_address(unit.low_sums());
              const std::uint32_t features = shared_address(unit.features());
#pragma unroll
              for (int step = 0; step < 2; ++step) {
                const int at = 2 * half + step;
                const std::uint32_t* left = p[half] + 4 * step;
                mma_bf16(scores, left, Tile<64>::depth_major(features, at), true);
                mma_bf16(o, left, SumTile<kDim>::descriptor(sums, at), true);
                mma_bf16(o, left, SumTile<kDim>::descriptor(low_sums, at), true);
              }
              mma_commit();
            };
            if (slice + 1 < kSlices) {
              mma_fence();
              project(slice + 1, half);
              accumulate();
            } else {
              mma_fence();
              accumulate();
            }
          }
        }
        mma_wait<0>();
        settle(o);
        settle(scores);
        if (threadIdx.x % 32 == 0) arrive(ScanBarriers::unit_empty(kGroups - 1));

        std::uint32_t left[16];
        select(a, scores, left);
        wait(ScanBarriers::carried().full + ring.stage, ring.parity);
        std::uint32_t y = shared_address(carried.y());
        writer.free_tile();
        if (!piece.is_whole()) [[unlikely]] {
          copy_piece<kDim>(carried.y(), layout.out(), piece, a.reverse, kReaderBarrier);
          y = shared_address(layout.out());
        }
        mma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          mma_rows(o, left + 4 * step, layout.values(y, ring.stage, step), true);
        }
        mma_commit();
        mma_wait<0>();
        settle(o);
        const int begin = a.reverse ? kRows - piece.end : piece.begin;
        const int end = begin + piece.end - piece.begin;
        if (piece.end == kRows && threadIdx.x % 32 == 0) {
          arrive(ScanBarriers::carried().empty + ring.stage);
        }
        if (!piece.is_whole()) sync_warpgroup(kReaderBarrier);  // the values are no longer read
        float inverse[2] = {1, 1};
        if (!a.reverse)
          divide(a, block, {o[kDim / 2], o[kDim / 2 + 2]}, shift, first_token, begin, end, inverse);
        writer.write(o, inverse[0], inverse[1], first_token, begin, end);
      } while (piece.end < kRows);
      if (held) {
        writer.free_tile();
        if (threadIdx.x % 32 == 0) arrive(ScanBarriers::reading().empty + ring.stage);
      }
    }
    if (threadIdx.x % 128 == 0) store_wait();
  }

 private:
  /// P = 2^(U + terms + scales - shift) of 32 features; the first ones choose the shift.
  __device__ static void weigh(const ScanArguments& a, const ScanUnit<kDim>& unit, int half,
                               bool slice_is_first, const float (&term)[2], float (&shift)[2],
                               float (&u)[16], std::uint32_t (&p)[8]) {
    // Terms, scales and shifts may be large: they meet first.
    const float* scales = unit.scales() + half * 32 + thread_again() % 4 * 2;
    float2 c[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) c[j] = *reinterpret_cast<const float2*>(scales + 8 * j);
    if (half == 0 && slice_is_first && !a.reverse) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          top = fmaxf(top, fmaxf(u[4 * j + 2 * h] + c[j].x, u[4 * j + 2 * h + 1] + c[j].y));
        }
        shift[h] = fminf(fmaxf(ceilf(quad_max(top)), 2 * kEmptyScale), -kEmptyScale);
      }
    }
    const float row0 = term[0] - shift[0], row1 = term[1] - shift[1];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      u[4 * j] += c[j].x + row0, u[4 * j + 1] += c[j].y + row0;
      u[4 * j + 2] += c[j].x + row1, u[4 * j + 3] += c[j].y + row1;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) p[k] = pack_bf16(exp2_fast(u[2 * k]), exp2_fast(u[2 * k + 1]));
  }

  __device__ static void raise_shifts(float (&u)[16], std::uint32_t (&p)[8], float (&shift)[2],
                                      float (&o)[kColumns / 2], float (&scores)[32]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        top = fmaxf(top, fmaxf(u[4 * j + 2 * h], u[4 * j + 2 * h + 1]));
      }
      // Only rows that exceed by themselves: no row sees another.
      float largest = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 pair = unpack<false>(p[2 * k + h]);
        largest = fmaxf(largest, fmaxf(pair.x, pair.y));
      }
      const bool exceeds = quad_max(largest) > kMostWeight;
      const float most = quad_max(top);
      const float more = exceeds ? fminf(ceilf(most), -kEmptyScale) : 0, factor = exp2_fast(-more);
      shift[h] += more;
#pragma unroll
      for (int j = 0; j < 4; ++j) u[4 * j + 2 * h] -= more, u[4 * j + 2 * h + 1] -= more;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        o[4 * j + 2 * h] *= factor, o[4 * j + 2 * h + 1] *= factor;
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        scores[4 * j + 2 * h] *= factor, scores[4 * j + 2 * h + 1] *= factor;
      }
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) p[k] = pack_bf16(exp2_fast(u[2 * k]), exp2_fast(u[2 * k + 1]));
  }

  /// Only tokens up to the row's own: selected, so that nothing of the others is multiplied.
  __device__ static void select(const ScanArguments& a, const float (&scores)[32],
                                std::uint32_t (&left)[16]) {
    const Place place(thread_again());
    const int distance = place.row - place.column;
    if (a.reverse) {
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        const int at = 8 * (k / 2) - 8 * (k % 2);
        left[k] = pack_bf16(at >= distance ? scores[2 * k] : 0,
                            at + 1 >= distance ? scores[2 * k + 1] : 0);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        const int at = 8 * (k / 2) - 8 * (k % 2);
        left[k] = pack_bf16(at <= distance ? scores[2 * k] : 0,
                            at + 1 <= distance ? scores[2 * k + 1] : 0);
      }
    }
  }

  /// 1 / the sums of the rows, which the first threads of quads hold.
  __device__ static void divide(const ScanArguments& a, const ScanBlock& block,
                                const float (&sums)[2], const float (&shift)[2], int first_token,
                                int begin, int end, float (&inverse)[2]) {
    const int thread = thread_again();
    const Place place(thread);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = __shfl_sync(~0U, sums[h], thread % 32 & ~3);
      inverse[h] = sum == 0 ? 0 : reciprocal(sum);  // a row without keys
      const int row = place.row + 8 * h, token = first_token + row;
      if (a.row_sum != nullptr && place.column == 0 && token < block.length && row >= begin &&
          row < end) {
        a.row_sum[block.row(a) + token] = sum;
        a.row_log2[block.row(a) + token] = static_cast<std::int32_t>(shift[h]);
      }
    }
  }
};

}  // namespace

cudaError_t scan_apply(const ScanArguments& a, int dim, cudaStream_t stream) {
  return choose_scan<ApplyReader>(a, dim, stream);
}

}  // namespace performer::kernels::cuda::hopper
