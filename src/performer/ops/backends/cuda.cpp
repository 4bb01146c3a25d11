#include "performer/ops/backends/cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "performer/kernels/cuda/decode/decode.h"
#include "performer/kernels/cuda/fingerprint.h"
#include "performer/kernels/cuda/kernels.h"

namespace performer::backends {
namespace {

using kernels::cuda::Device;

/// A device, made current for a call, and its stream.
struct Place {
  explicit Place(at::Device device) : guard(device), stream(c10::cuda::getCurrentCUDAStream()) {
    C10_CUDA_CHECK(kernels::cuda::current_device(properties));
  }

  c10::cuda::CUDAGuard guard;
  c10::cuda::CUDAStream stream;
  Device properties;
};

kernels::cuda::Path kernel_path(Path path) {
  return path == Path::kCudaHopper ? kernels::cuda::Path::kHopper : kernels::cuda::Path::kPortable;
}

Tensor bytes(std::size_t count, const Tensor& like) {
  return at::empty({static_cast<std::int64_t>(count)}, like.options().dtype(at::kByte));
}

}  // namespace

bool has_cuda_kernels() { return true; }

bool serves_cuda(Path path, Pass pass, const Call& call) {
  const Place place(call.args().q.device());
  const kernels::FavorProblem& problem = call.pointers().problem;
  if (path == Path::kCudaDecode) {
    return kernels::cuda::decode::serves(problem, place.properties);
  }
  return pass == kBackward
             ? kernels::cuda::serves_backward(kernel_path(path), problem, place.properties)
             : kernels::cuda::serves_forward(kernel_path(path), problem, place.properties);
}

void refuse_hopper(const FavorArgs& a, Pass pass) {
  const Device device = Place(a.q.device()).properties;
  TORCH_CHECK(device.major == 9, "PERFORMER_CUDA_KERNELS=hopper needs compute capability 9.0, got ",
              device.major, ".", device.minor);
  TORCH_CHECK(false, "PERFORMER_CUDA_KERNELS=hopper does not serve the ",
              pass == kBackward ? "backward" : "forward", " pass of ", kernel_name("cuda", a),
              " with q ", a.q.sizes(), " (strides ", a.q.strides(), "), k ", a.k.sizes(), ", v ",
              a.v.sizes(), " and ", a.num_features(), " features; use auto or portable");
}

void forward_cuda(Path path, const Call& call, const FavorResult& result) {
  const Place place(call.args().q.device());
  const kernels::FavorProblem& problem = call.pointers().problem;
  const auto kernels_of = kernel_path(path);
  const Tensor workspace =
      bytes(kernels::cuda::forward_workspace(kernels_of, problem, place.properties), result.out);
  C10_CUDA_CHECK(kernels::cuda::forward(kernels_of, problem, forward_outputs(result),
                                        place.properties, workspace.data_ptr(), place.stream));
}

void step_cuda(const Call& call, const Tensor& out, const FavorState& to) {
  const Place place(call.args().q.device());
  C10_CUDA_CHECK(kernels::cuda::decode::step(call.pointers().problem, token_view(out),
                                             state_view(to.kv, to.normalizer, to.log2_scale),
                                             place.properties, place.stream));
}

void backward_cuda(Path path, const Call& call, const FavorSaved& saved,
                   const FavorGradients& grads) {
  const Place place(call.args().q.device());
  const kernels::FavorProblem& problem = call.pointers().problem;
  const auto kernels_of = kernel_path(path);
  const KernelBackward pass(saved, call.args(), grads);
  const Tensor workspace = bytes(
      kernels::cuda::backward_workspace(kernels_of, problem, place.properties), call.args().q);
  C10_CUDA_CHECK(kernels::cuda::backward(kernels_of, problem, pass.inputs, pass.outputs,
                                         place.properties, workspace.data_ptr(), place.stream));
}

Tensor fingerprint_cuda(const std::array<Tensor, kernels::kFingerprintTensors>& parameters,
                        std::uint64_t seed, at::Device device) {
  if (!device.is_cuda()) return {};
  const Place place(device);
  kernels::cuda::FingerprintJob job{{}, seed};
  std::array<Tensor, kernels::kFingerprintTensors> kept;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!parameters[i].defined()) continue;
    kept[i] = parameters[i].contiguous();
    job.tensors[i] = {kept[i].const_data_ptr(), kept[i].numel(),
                      kept[i].scalar_type() == at::kDouble};
  }
  const Tensor out = at::empty({1}, at::TensorOptions().device(device).dtype(at::kLong));
  C10_CUDA_CHECK(kernels::cuda::fingerprint(job, out.data_ptr<std::int64_t>(), place.properties,
                                            place.stream));
  return out;
}

bool capturing_cuda_graph(at::Device device) {
  if (!device.is_cuda()) return false;
  const c10::cuda::CUDAGuard guard(device);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace performer::backends
