#pragma once

#include "performer/kernels/cuda/common/dispatch.h"
#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/hopper/causal/carry.cuh"
#include "performer/kernels/cuda/hopper/causal/feed.cuh"

// A block of a scan: one producer warpgroup, two that carry, one that reads. A block has one
// segment of one item.
namespace performer::kernels::cuda::hopper {

inline constexpr int kScanThreads = 128 * (kGroups + 2);

__host__ __device__ inline bool one_side(const ScanArguments& a) {
  return a.carried_side.high == a.reading_side.high;
}

/// Reader: layout(arguments), kReading, registers, and read(...), all of a block's chunks.
template <int kDim, int kOwned, class Reader>
__global__ void __launch_bounds__(kScanThreads, 1)
    scan_kernel(const __grid_constant__ ScanArguments a,
                const __grid_constant__ ScanLayout<kDim> layout) {
  char* memory = scan_memory();
  if (threadIdx.x == 0) {
    const int readers = a.alone ? 0 : 4;
    ScanBarriers::carried().initialise(2, 32, 4 * kGroups + readers);
    ScanBarriers::reading().initialise(2, !a.reverse && Reader::kReading == Kind::kQueries ? 1 : 32,
                                       4);
    for (int i = 0; i < 2; ++i)
      init(ScanBarriers::unit_full(i), 4), init(ScanBarriers::unit_empty(i), 4);
    init(ScanBarriers::weights(), 1);
    fence_barrier_init();
    ScanBarriers::block() = ScanBlock(a);
  }
  constexpr int kChunks = ScanLayout<kDim>::SideTile::kBytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < kChunks; i += kScanThreads) {
    reinterpret_cast<uint4*>(layout.side())[i] = uint4{0x3F80U, 0, 0, 0};
  }
  fence_async();
  __syncthreads();
  const ScanBlock& block = ScanBarriers::block();

  if (threadIdx.x < 128) {
    give_registers<Reader::kProducer>();
    if (threadIdx.x == 0) {
      const Projection &c = a.carried_side, &r = a.reading_side;
      constexpr int kElements = Tile<kDim>::kBytes / 2;
      const bool alike = one_side(a);
      const std::uint32_t part = layout.weights;
      const bool plain = Reader::kPulls && a.reading.half;
      arrive_expecting(ScanBarriers::weights(), part * ((alike ? 2 : 4) + (plain ? 1 : 0)));
      const std::int64_t from =
          std::int64_t{block.head} / (a.heads / c.heads) * a.slices * kElements;
      const std::int64_t other =
          std::int64_t{block.head} / (a.heads / r.heads) * a.slices * kElements;
      bulk_load(memory + layout.carried_w, c.high + from, part, ScanBarriers::weights());
      bulk_load(memory + layout.carried_w + part, c.low + from, part, ScanBarriers::weights());
      if (!alike) {
        bulk_load(memory + layout.reading_w, r.high + other, part, ScanBarriers::weights());
        bulk_load(memory + layout.reading_w + part, r.low + other, part, ScanBarriers::weights());
      }
      if (plain) bulk_load(memory + layout.plain, r.plain + other, part, ScanBarriers::weights());
    }
    __syncwarp();
    feed<kDim, Reader::kReading>(a, layout, block);
  } else if (threadIdx.x < 128 * (kGroups + 1)) {
    take_registers<Reader::kCarrier>();
    Carrier<kDim, kOwned, Reader::kHalf>(a, layout, block).run();
  } else {
    take_registers<Reader::kReader>();
    if (!a.alone) Reader::read(a, layout, block);
  }
}

template <int kDim, int kOwned, class Reader>
cudaError_t launch_scan(const ScanArguments& a, cudaStream_t stream) {
  const auto layout = Reader::layout(a);
  if (!layout.fits()) return cudaErrorInvalidValue;
  return launch(scan_kernel<kDim, kOwned, Reader>,
                {a.sequences * a.heads * a.segments, kScanThreads, layout.shared}, stream, a,
                layout);
}

template <template <int, int, bool> class Reader, int kDim, int kSlices>
cudaError_t launch_scan_of(const ScanArguments& a, cudaStream_t stream) {
  constexpr int kOwned = kSlices / kGroups;
  return a.carried.half ? launch_scan<kDim, kOwned, Reader<kDim, kOwned, true>>(a, stream)
                        : launch_scan<kDim, kOwned, Reader<kDim, kOwned, false>>(a, stream);
}

/// The shapes that scans are built for (scan_slices).
template <template <int, int, bool> class Reader>
cudaError_t choose_scan(const ScanArguments& a, int dim, cudaStream_t stream) {
  if (dim == 32 && a.slices == 4) return launch_scan_of<Reader, 32, 4>(a, stream);
  if (dim != 64) return cudaErrorInvalidValue;
  return with_value<2, 4>(
      a.slices, [&](auto slices) { return launch_scan_of<Reader, 64, slices()>(a, stream); });
}

}  // namespace performer::kernels::cuda::hopper
