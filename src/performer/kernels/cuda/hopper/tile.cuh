#pragma once

#include <cstdint>

#include "performer/kernels/cuda/hopper/ptx.cuh"
#include "performer/kernels/cuda/hopper/wgmma.cuh"

// A tile in shared memory: 64 rows (tokens or features) of kDim 16-bit numbers, in blocks of at
// most 64 columns whose rows are swizzled as wgmma reads them.
namespace performer::kernels::cuda::hopper {

inline constexpr int kRows = 64;  // of every tile

template <int kDim>
struct Tile {
  static constexpr int kRowBytes = kDim < 64 ? 2 * kDim : 128;
  static constexpr int kBlockBytes = kRows * kRowBytes;
  static constexpr int kBytes = kRows * kDim * 2;
  static constexpr int kChunks = kDim / 8;  // of 16 bytes in a row
  static constexpr std::uint64_t kSwizzle = kRowBytes == 128 ? 1 : 2;

  /// Byte offset of the 16-byte chunk `chunk` of `row`.
  __host__ __device__ static int offset(int row, int chunk) {
    constexpr int kPerRow = kRowBytes / 16;
    const int block = chunk / kPerRow, in_row = chunk % kPerRow;
    const int pattern = kRowBytes == 128 ? row & 7 : (row >> 1) & 3;
    return block * kBlockBytes + row * kRowBytes + ((in_row ^ pattern) << 4);
  }

  /// Rows are the operand's rows, columns its depth: 16 columns from 16 * step on.
  __device__ static std::uint64_t depth_major(std::uint32_t address, int step) {
    constexpr int kSteps = kRowBytes / 32;
    return descriptor(address + step / kSteps * kBlockBytes + step % kSteps * 32, 1, 8 * kRowBytes);
  }

  /// Columns are the operand's rows, rows its depth: 16 rows from 16 * step on.
  __device__ static std::uint64_t row_major(std::uint32_t address, int step) {
    return descriptor(address + step * 16 * kRowBytes, kBlockBytes, 8 * kRowBytes);
  }
  /// The same with 8 more columns, at a higher address.
  __device__ static std::uint64_t row_major(std::uint32_t address, int step, std::uint32_t more) {
    const std::uint32_t from = address + step * 16 * kRowBytes;
    return descriptor(from, static_cast<int>(more - from), 8 * kRowBytes);
  }

 private:
  __device__ static std::uint64_t descriptor(std::uint32_t address, int leading, int stride) {
    return static_cast<std::uint64_t>((address & 0x3FFFF) >> 4) |
           static_cast<std::uint64_t>(leading >> 4) << 16 |
           static_cast<std::uint64_t>(stride >> 4) << 32 | kSwizzle << 62;
  }
};

/// [kDim + 8 columns of S and z][64 features], contiguous along features: what query features are
/// multiplied with.
template <int kDim>
struct SumTile {
  static constexpr int kColumns = kDim + 8;
  static constexpr int kBytes = kColumns * 128;

  __host__ __device__ static int offset(int column, int feature) {
    return column * 128 + (((feature >> 3) ^ (column & 7)) << 4) + (feature & 7) * 2;
  }

  __device__ static std::uint64_t descriptor(std::uint32_t address, int step) {
    return static_cast<std::uint64_t>(((address + step * 32) & 0x3FFFF) >> 4) |
           static_cast<std::uint64_t>(1024 >> 4) << 32 | 1ULL << 62;
  }
};

/// A thread's place in the fragments of its warpgroup (wgmma.cuh).
struct Place {
  int row, column;  // rows row and row + 8, columns column and column + 1 of each block of 8
  __device__ Place()
      : row(static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4)),
        column(static_cast<int>(threadIdx.x % 4 * 2)) {}
};

/// Makes values ready in registers here, not where a branch first uses them.
template <int kCount>
__device__ inline void settle(float (&values)[kCount]) {
#pragma unroll
  for (float& v : values) asm volatile("" : "+f"(v));
}

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0U, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0U, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0U, x, 1);
  return x + __shfl_xor_sync(~0U, x, 2);
}

}  // namespace performer::kernels::cuda::hopper
