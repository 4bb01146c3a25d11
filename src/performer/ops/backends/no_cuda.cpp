#include "performer/ops/backends/cuda.h"

// A build without CUDA kernels: the composed operator serves tensors of a GPU, and nobody asks the
// kernels for more.
namespace performer::backends {

bool has_cuda_kernels() { return false; }

bool serves_cuda(Path /*path*/, Pass /*pass*/, const Call& /*call*/) { return false; }

void refuse_hopper(const FavorArgs& /*args*/, Pass /*pass*/) {}

void forward_cuda(Path /*path*/, const Call& /*call*/, const FavorResult& /*result*/) {}

void step_cuda(const Call& /*call*/, const Tensor& /*out*/, const FavorState& /*to*/) {}

void backward_cuda(Path /*path*/, const Call& /*call*/, const FavorSaved& /*saved*/,
                   const FavorGradients& /*gradients*/) {}

Tensor fingerprint_cuda(const std::array<Tensor, kernels::kFingerprintTensors>& /*parameters*/,
                        std::uint64_t /*seed*/, at::Device /*device*/) {
  return {};
}

bool capturing_cuda_graph(at::Device /*device*/) { return false; }

}  // namespace performer::backends
