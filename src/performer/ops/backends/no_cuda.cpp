#include "performer/ops/backends/cuda.h"

// A build without CUDA kernels: the composed operator serves tensors of a GPU.
namespace performer {

bool forward_cuda(const FavorArgs& /*args*/, const FavorResult& /*result*/) { return false; }

bool backward_cuda(const FavorSaved& /*saved*/, const FavorArgs& /*args*/,
                   const FavorGradients& /*gradients*/) {
  return false;
}

bool served_by_cuda_kernels(const FavorArgs& /*args*/) { return false; }

Tensor fingerprint_cuda(const std::array<Tensor, kernels::kFingerprintTensors>& /*parameters*/,
                        std::uint64_t /*seed*/, at::Device /*device*/) {
  return {};
}

bool capturing_cuda_graph(at::Device /*device*/) { return false; }

}  // namespace performer
