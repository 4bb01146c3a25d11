#include "performer/ops/backends/cuda.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "performer/kernels/cuda/fingerprint.h"
#include "performer/kernels/cuda/kernels.h"
#include "performer/ops/backends/cuda_step.h"
#include "performer/ops/backends/pointers.h"
#include "performer/ops/backends/replay.h"
#include "performer/ops/last_kernel.h"

namespace performer {
namespace {

using kernels::FavorProblem;
using kernels::cuda::Device;
using kernels::cuda::Path;

constexpr const char* kVariable = "PERFORMER_CUDA_KERNELS";
constexpr std::int64_t kMaxWidth = 256;
/// Whether every forward kernel takes null for row_sum and row_log2_scale, which nobody reads where
/// no backward pass follows.
constexpr bool kRowsAreOptional = true;

enum class Choice : std::uint8_t { kAuto, kPortable, kHopper, kOff };

Choice requested() {
  const char* value = std::getenv(kVariable);
  const std::string name = value == nullptr || *value == '\0' ? "auto" : value;
  if (name == "auto") return Choice::kAuto;
  if (name == "portable") return Choice::kPortable;
  if (name == "hopper") return Choice::kHopper;
  TORCH_CHECK(name == "off", kVariable, "=", name, " is not one of auto, portable, hopper, off");
  return Choice::kOff;
}

// What the composed operator alone computes.
bool composed_only(const FavorArgs& a) {
  const FeatureMap map = a.map();
  return !a.q.is_cuda() || a.q.scalar_type() == at::kDouble || !a.renormalize ||
         !(is_exponential_map(map) || map == FeatureMap::kRelu) || a.q.size(3) > kMaxWidth ||
         a.v.size(3) > kMaxWidth || a.v.size(3) == 0;
}

Device current_device() {
  Device device;
  C10_CUDA_CHECK(kernels::cuda::current_device(device));
  return device;
}

[[noreturn]] void refuse_hopper(const FavorArgs& a, const Device& device, const char* pass) {
  TORCH_CHECK(device.major == 9, kVariable, "=hopper needs compute capability 9.0, got ",
              device.major, ".", device.minor);
  TORCH_CHECK(false, kVariable, "=hopper does not serve the ", pass, " pass of ",
              kernel_name("cuda", a), " with q ", a.q.sizes(), " (strides ", a.q.strides(), "), k ",
              a.k.sizes(), ", v ", a.v.sizes(), " and ", a.num_features(),
              " features; use auto or portable");
}

/// A call on its device and stream.
class CudaCall {
 public:
  explicit CudaCall(const FavorArgs& args)
      : args_(args),
        guard_(args.q.device()),
        stream_(c10::cuda::getCurrentCUDAStream()),
        device_(current_device()),
        call_(checked_for_capture(args)) {}

  std::optional<Path> forward_path(Choice choice) const {
    return path(choice, &kernels::cuda::serves_forward, "forward");
  }
  std::optional<Path> backward_path(Choice choice) const {
    return path(choice, &kernels::cuda::serves_backward, "backward");
  }

  void forward(Path path, const FavorResult& result) const {
    const FavorResult full = kRowsAreOptional ? result : with_rows(args_, result);
    const Tensor workspace = bytes(kernels::cuda::forward_workspace(path, call_.problem, device_));
    C10_CUDA_CHECK(kernels::cuda::forward(path, call_.problem, forward_outputs(full), device_,
                                          workspace.data_ptr(), stream_));
    note(path);
  }

  void backward(Path path, const FavorSaved& saved, const FavorGradients& grads) const {
    const KernelBackward pass(saved, args_, grads);
    const Tensor workspace = bytes(kernels::cuda::backward_workspace(path, call_.problem, device_));
    C10_CUDA_CHECK(kernels::cuda::backward(path, call_.problem, pass.inputs, pass.outputs, device_,
                                           workspace.data_ptr(), stream_));
    note(path);
  }

 private:
  using Serves = bool (*)(Path, const FavorProblem&, const Device&);

  // Offsets from the host would be copied once, into the graph, and never again.
  static const FavorArgs& checked_for_capture(const FavorArgs& a) {
    const bool on_device = !a.packed() || (a.cu_seqlens_q.is_cuda() && a.cu_seqlens_k.is_cuda());
    TORCH_CHECK(on_device || !capturing_cuda_graph(a.q.device()),
                "favor_attention: cu_seqlens must be on the device of q, ", a.q.device(),
                ", while a CUDA graph is captured, got ", a.cu_seqlens_q.device(), " and ",
                a.cu_seqlens_k.device());
    return a;
  }

  std::optional<Path> path(Choice choice, Serves serves, const char* pass) const {
    if (choice != Choice::kPortable && serves(Path::kHopper, call_.problem, device_)) {
      return Path::kHopper;
    }
    if (!serves(Path::kPortable, call_.problem, device_)) return std::nullopt;
    if (choice == Choice::kHopper) refuse_hopper(args_, device_, pass);
    return Path::kPortable;
  }

  Tensor bytes(std::size_t count) const {
    return at::empty({static_cast<std::int64_t>(count)}, args_.q.options().dtype(at::kByte));
  }

  void note(Path path) const {
    set_last_kernel(kernel_name(std::string("cuda/") + kernels::cuda::name(path), args_));
  }

  const FavorArgs& args_;
  c10::cuda::CUDAGuard guard_;
  c10::cuda::CUDAStream stream_;
  Device device_;
  KernelCall call_;
};

}  // namespace

bool any_cuda_kernel(const FavorArgs& args) {
  return !composed_only(args) && requested() == Choice::kAuto;
}

bool served_by_cuda_kernels(const FavorArgs& args) {
  if (composed_only(args)) return false;
  const Choice choice = requested();
  return choice != Choice::kOff && CudaCall(args).forward_path(choice).has_value();
}

bool forward_cuda(const FavorArgs& args, const FavorResult& result) {
  if (composed_only(args)) return false;
  const Choice choice = requested();
  if (choice == Choice::kOff) return false;
  const FavorState state{result.kv, result.normalizer, result.log2_scale, {}};
  if (!args.for_backward && step_cuda(args, result.out, state)) return true;
  const CudaCall call(args);
  const auto path = call.forward_path(choice);
  if (path) call.forward(*path, result);
  return path.has_value();
}

bool backward_cuda(const FavorSaved& saved, const FavorArgs& args, const FavorGradients& grads) {
  if (composed_only(args) || needs_composed_backward(saved, args)) return false;
  const Choice choice = requested();
  if (choice == Choice::kOff || !saved.result.out.defined()) return false;
  const CudaCall call(args);
  const auto path = call.backward_path(choice);
  if (!path) return false;
  if (path == call.forward_path(choice)) {
    call.backward(*path, saved, grads);
  } else {
    const FavorSaved own = replay_forward(
        saved, args,
        [&](const FavorArgs& /*args*/, const FavorResult& result) { call.forward(*path, result); });
    call.backward(*path, own, grads);
  }
  return true;
}

Tensor fingerprint_cuda(const std::array<Tensor, kernels::kFingerprintTensors>& parameters,
                        std::uint64_t seed, at::Device device) {
  if (!device.is_cuda()) return {};
  const c10::cuda::CUDAGuard guard(device);
  kernels::cuda::FingerprintJob job{{}, seed};
  std::array<Tensor, kernels::kFingerprintTensors> kept;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!parameters[i].defined()) continue;
    kept[i] = parameters[i].contiguous();
    job.tensors[i] = {kept[i].const_data_ptr(), kept[i].numel(),
                      kept[i].scalar_type() == at::kDouble};
  }
  const Tensor out = at::empty({1}, at::TensorOptions().device(device).dtype(at::kLong));
  C10_CUDA_CHECK(kernels::cuda::fingerprint(job, out.data_ptr<std::int64_t>(), current_device(),
                                            c10::cuda::getCurrentCUDAStream()));
  return out;
}

bool capturing_cuda_graph(at::Device device) {
  if (!device.is_cuda()) return false;
  const c10::cuda::CUDAGuard guard(device);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace performer
