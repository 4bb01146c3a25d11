#pragma once

#include <cstdint>

#include "performer/kernels/cuda/common/maps.cuh"
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

  /// Descriptors of an operand at a shared address, which all threads of a warp have alike
  /// (uniform). Rows are the operand's rows, columns its depth: 16 columns from 16 * step on.
  __device__ static std::uint64_t depth_major(std::uint32_t address, int step) {
    constexpr int kSteps = kRowBytes / 32;
    return descriptor((address >> 4) + (step / kSteps * kBlockBytes + step % kSteps * 32) / 16, 0);
  }

  /// Columns are the operand's rows, rows its depth: 16 rows from 16 * step on.
  __device__ static std::uint64_t row_major(std::uint32_t address, int step) {
    return descriptor((address >> 4) + step * kRowBytes, kBlockBytes >> 4);
  }
  /// The same with 8 more columns, in the rows of another tile at a higher address.
  __device__ static std::uint64_t row_major_beside(std::uint32_t address, int step,
                                                   std::uint32_t other) {
    return descriptor((address >> 4) + step * kRowBytes, (other - address) >> 4);
  }
  /// The same with 8 more columns that are alike in all rows, at a higher address.
  __device__ static std::uint64_t row_major(std::uint32_t address, int step, std::uint32_t more) {
    const std::uint32_t from = (address >> 4) + step * kRowBytes;
    return descriptor(from, (more >> 4) - from);
  }

 private:
  // Units of 16 bytes. leading: between blocks of columns that are the operand's rows.
  __device__ static std::uint64_t descriptor(std::uint32_t start, std::uint32_t leading) {
    constexpr std::uint32_t kHigh = (8 * kRowBytes >> 4) | static_cast<std::uint32_t>(kSwizzle)
                                                               << 30;
    return static_cast<std::uint64_t>(kHigh) << 32 | (leading << 16 | start);
  }
};

/// What query features are multiplied with: [kDim + 8 columns of S and z][64 features], contiguous
/// along features.
template <int kDim>
struct SumTile {
  static constexpr int kColumns = kDim + 8;
  static constexpr int kBytes = kColumns * 128;

  __host__ __device__ static int offset(int column, int feature) {
    return column * 128 + (((feature >> 3) ^ (column & 7)) << 4) + (feature & 7) * 2;
  }

  __device__ static std::uint64_t descriptor(std::uint32_t address, int step) {
    constexpr std::uint32_t kHigh = (1024 >> 4) | 1U << 30;
    return static_cast<std::uint64_t>(kHigh) << 32 | ((address >> 4) + step * 2);
  }
};

/// The warpgroup of the thread, and any number that is the same in all threads of a warp, known to
/// the compiler as such: descriptors are then made by the uniform unit.
__device__ inline int uniform(int x) { return __shfl_sync(~0U, x, 0); }
__device__ inline int warpgroup() { return uniform(static_cast<int>(threadIdx.x / 128)); }

/// threadIdx.x, read here: what depends on it is not kept in registers from an earlier use.
__device__ inline int thread_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// A thread's place in the fragments of its warpgroup (wgmma.cuh).
struct Place {
  int row, column;  // rows row and row + 8, columns column and column + 1 of each block of 8
  __device__ explicit Place(int thread = static_cast<int>(threadIdx.x))
      : row(thread % 128 / 32 * 16 + thread % 32 / 4), column(thread % 4 * 2) {}
};

/// The rows of the thread's warp in a tile as left operands: four registers per 16 columns.
template <int kDim>
struct Fragment {
  std::uint32_t part[kDim / 16][4];

  __device__ void load(std::uint32_t tile) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = static_cast<int>(threadIdx.x % 128 / 32 * 16) + lane % 16;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(part[step][0]), "=r"(part[step][1]), "=r"(part[step][2]),
                     "=r"(part[step][3])
                   : "r"(tile + Tile<kDim>::offset(row, 2 * step + lane / 16)));
    }
  }
};

/// u += left right^T, both tiles of the tokens' type, over all of the depth; `add` false: u = ...
template <bool kHalf, int kDim, int kCount>
__device__ inline void multiply_tiles(float (&u)[kCount], std::uint32_t left, std::uint32_t right,
                                      bool add) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    const std::uint64_t a = Tile<kDim>::depth_major(left, step);
    const std::uint64_t b = Tile<kDim>::depth_major(right, step);
    mma<kHalf>(u, a, b, add || step != 0);
  }
}

/// u += left right^T with rows in registers.
template <bool kHalf, int kDim, int kCount>
__device__ inline void multiply(float (&u)[kCount], const Fragment<kDim>& left, std::uint32_t right,
                                bool add) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    mma<kHalf>(u, left.part[step], Tile<kDim>::depth_major(right, step), add || step != 0);
  }
}

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
