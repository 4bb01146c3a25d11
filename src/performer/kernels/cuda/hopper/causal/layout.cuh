#pragma once

#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/hopper/causal/scan.h"
#include "performer/kernels/cuda/hopper/producer.cuh"
#include "performer/kernels/cuda/hopper/walk.cuh"

// Shared memory of a scan's block, and which tokens are the block's.
namespace performer::kernels::cuda::hopper {

inline constexpr int kGroups = 2;  // warpgroups that carry, every other slice each

/// A block's shared memory. The runtime begins it at a multiple of 1 KiB, for swizzled tiles.
__device__ inline char* scan_memory() {
  extern __shared__ __align__(1024) char memory[];
  return memory;
}

/// 64 tokens of one side.
template <int kDim>
struct ScanStage {
  static constexpr int kTerms = 2 * Tile<kDim>::kBytes;
  static constexpr int kBytes = kTerms + 1024;

  char* at;

  __device__ char* x() const { return at; }
  __device__ char* y() const { return at + Tile<kDim>::kBytes; }
  __device__ float* terms() const { return reinterpret_cast<float*>(at + kTerms); }
  __device__ float* weights() const { return reinterpret_cast<float*>(at + kTerms + 256); }
  /// No exponent of the carried tokens is above.
  __device__ float* upper() const { return reinterpret_cast<float*>(at + kTerms + 512); }
  /// Bits of the tokens that are not finite, or have values so large that products might not be.
  __device__ std::uint32_t* odd() const {
    return reinterpret_cast<std::uint32_t*>(at + kTerms + 516);
  }
};

/// Tokens [begin, end) of a chunk, in the order of the scan.
struct ScanPiece {
  int begin, end;

  __device__ bool is_whole() const { return begin == 0 && end == kRows; }
  __device__ static int place(int token, bool reverse) {
    return reverse ? kRows - 1 - token : token;
  }
  __device__ bool holds(int token, bool reverse) const {
    const int at = place(token, reverse);
    return at >= begin && at < end;
  }
};

/// A tile of values, zeros outside the piece, by the threads of a warpgroup, which then meet at
/// `barrier`: wgmma may read it.
template <int kDim>
__device__ inline void copy_piece(const char* from, char* to, const ScanPiece& piece, bool reverse,
                                  int barrier) {
  constexpr int kChunks = Tile<kDim>::kChunks;
  for (int i = thread_again() % 128; i < kRows * kChunks; i += 128) {
    const int at = Tile<kDim>::offset(i / kChunks, i % kChunks);
    uint4 value{0, 0, 0, 0};
    if (piece.holds(i / kChunks, reverse)) value = *reinterpret_cast<const uint4*>(from + at);
    *reinterpret_cast<uint4*>(to + at) = value;
  }
  fence_async();
  sync_warpgroup(barrier);
}

/// What a carrying warpgroup hands to the reading one: a slice of features.
template <int kDim>
struct ScanUnit {
  static constexpr int kSums = Tile<64>::kBytes;
  static constexpr int kLow = kSums + SumTile<kDim>::kBytes;
  static constexpr int kScales = kLow + SumTile<kDim>::kBytes;
  static constexpr int kBytes = kScales + 1024;

  char* at;

  /// Features of the carried tokens [64 tokens, 64 features].
  __device__ char* features() const { return at; }
  /// S and z of the chunks before, the sum of two bfloat16 numbers. Rounded to one, S would move
  /// outputs further than their own rounding does where a key outweighs the others.
  __device__ char* sums() const { return at + kSums; }
  __device__ char* low_sums() const { return at + kLow; }
  __device__ float* scales() const { return reinterpret_cast<float*>(at + kScales); }
  __device__ float* normalizers() const { return scales() + kRows; }
  /// The scales of all slices of the warpgroup, in log2 units and without biases: 2 at most.
  __device__ float* own_scales() const { return scales() + 2 * kRows; }
};

/// The biases of both sides, behind the barriers: 4 slices at most.
struct ScanBiases {
  static constexpr int kEnd = 3072;
  __device__ static float* carried() { return reinterpret_cast<float*>(scan_memory() + 1024); }
  __device__ static float* reading() { return reinterpret_cast<float*>(scan_memory() + 2048); }
};

template <int kDim>
struct ScanLayout {
  using SideTile = Tile<(kDim < 64 ? 32 : 64)>;
  int weights;               // bytes of one part of W
  int carried_w, reading_w;  // high, then low
  int plain;                 // reading side, where float16 needs it
  int stages;
  int unit_at, carried_at, reading_at, side_at, out_at, shared;

  __host__ __device__ ScanLayout(int slices, bool one_side, bool has_plain)
      : weights(slices * Tile<kDim>::kBytes),
        carried_w(ScanBiases::kEnd),
        reading_w(carried_w + (one_side ? 0 : 2 * weights)),
        plain(reading_w + 2 * weights),
        stages(2),
        unit_at(plain + (has_plain ? weights : 0)) {
    place();
    if (shared > kSharedHopper) stages = 1, place();
  }

  __host__ __device__ bool fits() const { return shared <= kSharedHopper; }

  __device__ ScanUnit<kDim> unit(int group) const {
    return {scan_memory() + unit_at + group * ScanUnit<kDim>::kBytes};
  }
  __device__ ScanStage<kDim> carried(int index) const {
    return {scan_memory() + carried_at + index * ScanStage<kDim>::kBytes};
  }
  __device__ ScanStage<kDim> reading(int index) const {
    return {scan_memory() + reading_at + index * ScanStage<kDim>::kBytes};
  }
  /// A tile on its way out, or values masked to a piece of a chunk. A lone stage lends its y, which
  /// nobody reads then.
  __device__ char* out() const { return stages == 1 ? reading(0).y() : scan_memory() + out_at; }

  /// Values have 8 more columns beside them: (1, 0, ..) or the two parts of a weight, and zeros.
  /// Stages share a tile for it, 16 bytes of its rows each.
  __device__ char* side() const { return scan_memory() + side_at; }
  /// A right operand of y and the columns beside it.
  __device__ std::uint64_t values(std::uint32_t y, int stage, int step) const {
    return Tile<kDim>::row_major_beside(y, step, shared_address(side()) + stage * 16);
  }

 private:
  __host__ __device__ void place() {
    carried_at = unit_at + kGroups * ScanUnit<kDim>::kBytes;
    reading_at = carried_at + stages * ScanStage<kDim>::kBytes;
    out_at = reading_at + stages * ScanStage<kDim>::kBytes;
    side_at = out_at + (stages == 1 ? 0 : Tile<kDim>::kBytes);
    shared = side_at + SideTile::kBytes;
  }
};

/// A block's item and its chunks.
struct ScanBlock {
  int sequence, head, offset, length;
  int segment, first_tile, tiles;

  __device__ explicit ScanBlock(const ScanArguments& a)
      : sequence(static_cast<int>(blockIdx.x) / a.segments / a.heads),
        head(static_cast<int>(blockIdx.x) / a.segments % a.heads),
        offset(0),
        length(static_cast<int>(a.carried.length)),
        segment(static_cast<int>(blockIdx.x) % a.segments) {
    if (a.order != nullptr) sequence = a.order[sequence];
    if (a.offsets != nullptr) {
      // Offsets from the device were not checked.
      const std::int64_t total = a.carried.length;
      const std::int64_t begin = min(max(a.offsets[sequence], std::int64_t{0}), total);
      const std::int64_t end = min(max(a.offsets[sequence + 1], begin), total);
      offset = static_cast<int>(begin), length = static_cast<int>(end - begin);
    }
    const std::int64_t all = (length + kRows - 1) / kRows;
    first_tile = static_cast<int>(all * segment / a.segments);
    tiles = static_cast<int>(all * (segment + 1) / a.segments) - first_tile;
  }

  __device__ Span span(const ScanArguments& a) const {
    return {a.offsets != nullptr ? 0 : sequence, head, offset, length};
  }
  /// Of [batch, heads, length].
  __device__ std::int64_t row(const ScanArguments& a) const {
    return ((a.offsets != nullptr ? 0 : sequence) * std::int64_t{a.heads} + head) *
               a.carried.length +
           offset;
  }
  __device__ std::uint16_t* tokens(const ScanArguments& a, const Target& t) const {
    return t.data + (a.offsets != nullptr ? 0 : sequence) * t.batch + head * t.head +
           offset * t.token;
  }
  /// The row of its state, one of segments or not.
  __device__ std::int64_t state(const ScanArguments& a, bool of_segments) const {
    const std::int64_t one =
        sequence * std::int64_t{a.state_heads} + head / (a.heads / a.state_heads);
    return of_segments ? one * a.segments + segment : one;
  }
  /// Whether it ends the scan, for the items that share a state.
  __device__ bool is_last(const ScanArguments& a) const {
    return segment == (a.reverse ? 0 : a.segments - 1) && head % (a.heads / a.state_heads) == 0;
  }
  /// The first token of the scan's t-th chunk.
  __device__ int token(int t, bool reverse) const {
    return (first_tile + (reverse ? tiles - 1 - t : t)) * kRows;
  }
};

/// Everything in shared memory that is not data: the first KiB.
struct ScanBarriers {
  __device__ static RingBarriers carried() { return {scan_memory(), 2}; }
  __device__ static RingBarriers reading() { return {scan_memory() + 48, 2}; }
  __device__ static Barrier* unit_full(int i) { return at(12 + i); }
  __device__ static Barrier* unit_empty(int i) { return at(14 + i); }
  __device__ static Barrier* weights() { return at(16); }
  /// [2][8] of the carrying warps.
  __device__ static std::uint32_t* votes() { return reinterpret_cast<std::uint32_t*>(at(24)); }
  /// Here, since it has no room in registers.
  __device__ static ScanBlock& block() { return *reinterpret_cast<ScanBlock*>(at(48)); }
  /// Of the slice that lies in the group's unit.
  __device__ static ScanPiece& piece(int group) {
    return *reinterpret_cast<ScanPiece*>(at(56 + group));
  }
  /// 16 bytes that nobody reads.
  __device__ static void* nowhere() { return at(64); }

 private:
  __device__ static Barrier* at(int i) { return reinterpret_cast<Barrier*>(scan_memory()) + i; }
};

}  // namespace performer::kernels::cuda::hopper
