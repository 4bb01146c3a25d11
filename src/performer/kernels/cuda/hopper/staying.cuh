#pragma once

#include <algorithm>
#include <cstdint>

#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/hopper/walk.cuh"

// What blocks that stay (walk.cuh) have in common: a producer warpgroup, which also loads what
// belongs to an item, and consumers that take its tiles in turn.
namespace performer::kernels::cuda::hopper {

inline std::int64_t staying_blocks(std::int64_t items, std::int64_t length, int multiprocessors) {
  return std::min<std::int64_t>(items * divide_up(length, kRows), multiprocessors);
}

/// Shape: kDim, kKind and kConsumers, where things lie in shared memory, and the ring of stages.
template <class Shape>
struct StayingBlock {
  const Shape& shape;
  char* shared;
  const RingBarriers& ring;
  Barrier* loaded;    // what belongs to an item is there
  Barrier* released;  // and is no longer read

  /// The producer's warps: load(head of the projection, state, fresh) brings what belongs to an
  /// item, W too where it is `fresh`, and arrives at `loaded`.
  template <class Arguments, class Load>
  __device__ void produce(const Arguments& a, Load load) const {
    std::uint32_t parity = 1;
    std::int64_t packed = -1;  // the head whose W is here
    Piece::for_each(a.items, a.tokens.length, [&](Piece piece) {
      const int heads = a.tokens.heads;
      const std::int64_t head = piece.item % heads / (heads / a.projection.heads);
      const std::int64_t state =
          piece.item / heads * a.state_heads + piece.item % heads / (heads / a.state_heads);
      const Producer<Shape::kDim, Shape::kKind> producer(a.tokens, piece.item);
      // The first tiles come while the last item's are still worked on.
      const auto load_item = [&] {
        wait(released, parity);
        parity ^= 1;
        load(head, state, head != packed);
      };
      produce_tiles(
          producer, piece.begin, piece.count, piece.before, shape.ring_shape, ring,
          [&](int index) { return shape.stage(shared, index); }, load_item);
      packed = head;
    });
  }

  /// A consumer's tiles of a piece: visit(stage, first token), which may write to the stage.
  template <class Visit>
  __device__ void visit_tiles(const Piece& piece, int consumer, Visit visit) const {
    for (int tile = piece.first(consumer, Shape::kConsumers); tile < piece.count;
         tile += Shape::kConsumers) {
      const Ring at(piece.before + tile, shape.ring_shape.stages);
      const auto stage = shape.stage(shared, at.stage);
      const std::int64_t first_token = (piece.begin + tile) * kRows;
      wait(ring.full + at.stage, at.parity);
      visit(stage, first_token);
      fence_async();  // the next copy into the stage is not an ordinary write
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(ring.empty + at.stage);
    }
  }
};

}  // namespace performer::kernels::cuda::hopper
