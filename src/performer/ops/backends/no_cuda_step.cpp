#include "performer/ops/backends/cuda_step.h"

// A build without CUDA kernels: the whole pass serves.
namespace performer {

bool step_cuda(const FavorArgs& /*args*/, const Tensor& /*out*/, const FavorState& /*to*/) {
  return false;
}

}  // namespace performer
