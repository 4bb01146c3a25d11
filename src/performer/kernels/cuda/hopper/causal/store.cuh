#pragma once

#include "performer/kernels/cuda/hopper/causal/layout.cuh"

// How the reading warpgroup of a scan writes its rows.
namespace performer::kernels::cuda::hopper {

inline constexpr int kReaderBarrier = 2;  // of the reading warpgroup

/// Rows of one chunk after the other, through a tile of shared memory: whole chunks by TMA, pieces
/// and what hangs over the end of a packed sequence row by row.
template <int kDim>
class RowWriter {
 public:
  __device__ RowWriter(const ScanArguments& a, const ScanLayout<kDim>& layout,
                       const ScanBlock& block)
      : a_(a), layout_(layout), block_(block) {}

  /// The tile is no longer read by an earlier copy. All threads.
  __device__ void free_tile() const {
    if (threadIdx.x % 128 == 0) store_wait();
    sync_warpgroup(kReaderBarrier);
  }

  /// A fragment [64, kDim] times a factor per row. free_tile() first. Rows [begin, end) count.
  __device__ void write(const float* fragment, float factor0, float factor1, int first, int begin,
                        int end) const {
    const int thread = thread_again(), lane = thread % 32, block = lane / 8;
    const int row = thread % 128 / 32 * 16 + block % 2 * 8 + lane % 8;
    const bool mine = row >= begin && row < end;
    const std::uint32_t to = shared_address(layout_.out());
    const bool half = a_.reading.half;
#pragma unroll
    for (int j = 0; j < kDim / 8; j += 2) {
      std::uint32_t parts[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float factor = k % 2 == 0 ? factor0 : factor1;
        const float x = fragment[4 * j + 2 * k] * factor, y = fragment[4 * j + 2 * k + 1] * factor;
        parts[k] = half ? pack_f16(x, y) : pack_bf16(x, y);
      }
      // Rows of other pieces of a lent tile are still needed: theirs go nowhere.
      const std::uint32_t at = mine ? to + Tile<kDim>::offset(row, j + block / 2)
                                    : shared_address(ScanBarriers::nowhere());
      store_blocks(at, parts[0], parts[1], parts[2], parts[3]);
    }
    fence_async();
    sync_warpgroup(kReaderBarrier);
    const bool whole =
        begin == 0 && end == kRows && (a_.offsets == nullptr || first + kRows <= block_.length);
    if (whole && a_.to_mapped) [[likely]] {
      if (thread % 128 == 0) {
        constexpr int kBlock = Tile<kDim>::kRowBytes / 2;
#pragma unroll
        for (int e = 0; e < kDim; e += kBlock) {
          tensor_store(&a_.to_map, e, first + block_.offset, block_.head,
                       a_.offsets != nullptr ? 0 : block_.sequence,
                       layout_.out() + e / kBlock * Tile<kDim>::kBlockBytes);
        }
        store_commit();
      }
    } else {
      store_tile<kDim>(layout_.out(), a_.to, block_.tokens(a_, a_.to), first, block_.length, begin,
                       end);
    }
  }

 private:
  const ScanArguments& a_;
  const ScanLayout<kDim>& layout_;
  const ScanBlock& block_;
};

}  // namespace performer::kernels::cuda::hopper
