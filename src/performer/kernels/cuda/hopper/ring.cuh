#pragma once

#include <cstdint>

#include "performer/kernels/cuda/hopper/ptx.cuh"

// A ring of stages between the warps that fill it and the warpgroups that empty it.
namespace performer::kernels::cuda::hopper {

/// Where tile `index` of a block is in its ring of stages.
struct Ring {
  int stage;
  std::uint32_t parity;

  __device__ Ring(int index, int stages)
      : stage(index % stages), parity(static_cast<std::uint32_t>(index / stages & 1)) {}
};

/// The barriers of a stage: copied, ready, and free again.
struct StageBarriers {
  Barrier *raw, *full, *empty;
};

/// Those of a ring's stages.
struct RingBarriers {
  Barrier *raw, *full, *empty;

  __device__ RingBarriers(void* at, int stages)
      : raw(static_cast<Barrier*>(at)), full(raw + stages), empty(full + stages) {}
  __device__ Barrier* end(int stages) const { return empty + stages; }
  __device__ StageBarriers of(int stage) const {
    return {raw + stage, full + stage, empty + stage};
  }

  /// full_arrivals: 32 where a producer's warp hands tiles over, 1 where the copy itself does.
  __device__ void initialise(int stages, int full_arrivals, int consumer_warps) const {
    for (int s = 0; s < stages; ++s) {
      init(raw + s, 1);
      init(full + s, full_arrivals);
      init(empty + s, consumer_warps);
    }
  }
};

/// The length of a ring and the warps that fill it. A barrier tells two phases apart only: who
/// waits for a tile, or for its stage, must have seen the stage's last tile. With a multiple of
/// consumers and warps that was their own; else one warp hands all tiles over in order.
struct RingShape {
  int stages, warps, consumers;

  __host__ __device__ RingShape(int room, int consumers)
      : stages(room), warps(1), consumers(consumers) {
    const int unit = consumers == 3 ? 12 : 4;  // the least multiple of both
    if (room >= unit) stages = (room < 12 ? room : 12) / unit * unit, warps = 4;
    if (stages > 12) stages = 12;
  }
  bool works() const { return stages >= consumers; }
  /// Tiles between a copy and its conversion.
  __device__ int ahead() const { return warps == 1 ? 1 : (stages >= 8 ? 4 : 0); }
  /// Whether each warp's first tiles find their stages free of the piece's own tiles.
  __device__ bool is_long() const { return warps - 1 + ahead() < stages; }
};

}  // namespace performer::kernels::cuda::hopper
