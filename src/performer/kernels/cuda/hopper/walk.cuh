#pragma once

#include <cstdint>

#include "performer/kernels/cuda/hopper/producer.cuh"

// Blocks that stay: all tiles of all items in a row are cut into equal parts, one per block. What
// belongs to an item (W, S) is loaded when the next one begins.
namespace performer::kernels::cuda::hopper {

/// The part of one item in a block's tiles.
struct Piece {
  std::int64_t item, begin;  // of the item's tiles
  int count;
  int before;  // tiles of the block's earlier pieces

  /// The first of the consumer's tiles; it takes every `consumers`-th of the block.
  __device__ int first(int consumer, int consumers) const {
    return (consumer - before % consumers + consumers) % consumers;
  }

  /// The pieces of the block, one after the other: body(piece).
  template <class Body>
  __device__ static void for_each(std::int64_t items, std::int64_t length, Body body) {
    const std::int64_t per_item = (length + kRows - 1) / kRows;
    const std::int64_t tiles = items * per_item;
    std::int64_t tile = tiles * blockIdx.x / gridDim.x;
    const std::int64_t start = tile, end = tiles * (blockIdx.x + 1) / gridDim.x;
    while (tile < end) {
      const std::int64_t item = tile / per_item, first = item * per_item;
      const std::int64_t stop = end < first + per_item ? end : first + per_item;
      body(
          Piece{item, tile - first, static_cast<int>(stop - tile), static_cast<int>(tile - start)});
      tile = stop;
    }
  }
};

/// Rows [begin, end) of a tile in shared memory to where they belong. All of the warpgroup's writes
/// to the tile are visible.
template <int kDim>
__device__ void store_tile(const char* tile, const Target& to, std::uint16_t* rows,
                           std::int64_t first, std::int64_t length, int begin = 0,
                           int end = kRows) {
  constexpr int kChunks = Tile<kDim>::kChunks;
  const int thread = thread_again() % 128;
  const int chunk = thread % kChunks;
#pragma unroll
  for (int row = thread / kChunks; row < kRows; row += 128 / kChunks) {
    const uint4 value = *reinterpret_cast<const uint4*>(tile + Tile<kDim>::offset(row, chunk));
    if (row < begin || row >= end) continue;
    if (first + row < length) store_chunk(to, rows + (first + row) * to.token, chunk, value);
  }
}

/// A fragment [64, kDim] times a factor per row, rounded, into a tile.
template <int kDim>
__device__ void stage_fragment(char* tile, const float* fragment, float factor0, float factor1,
                               bool half) {
  const Place place(thread_again());
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = h == 0 ? factor0 : factor1;
      const float x = fragment[4 * j + 2 * h] * factor, y = fragment[4 * j + 2 * h + 1] * factor;
      *reinterpret_cast<std::uint32_t*>(tile + Tile<kDim>::offset(place.row + 8 * h, j) +
                                        2 * place.column) = half ? pack_f16(x, y) : pack_bf16(x, y);
    }
  }
}

}  // namespace performer::kernels::cuda::hopper
