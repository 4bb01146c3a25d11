#pragma once

#include "performer/kernels/cuda/hopper/causal/store.cuh"

namespace performer::kernels::cuda::hopper {

/// The t-th chunk of a reading warpgroup. Its tokens have arrived; those that are carried may not
/// have.
template <int kDim>
struct ReadingChunk {
  Ring ring;
  ScanStage<kDim> stage, carried;
  int first_token;

  __device__ ReadingChunk(const ScanArguments& a, const ScanLayout<kDim>& layout,
                          const ScanBlock& block, int t)
      : ring(t, layout.stages),
        stage(layout.reading(ring.stage)),
        carried(layout.carried(ring.stage)),
        first_token(block.token(t, a.reverse)) {
    wait(ScanBarriers::reading().full + ring.stage, ring.parity);
  }
};

}  // namespace performer::kernels::cuda::hopper
