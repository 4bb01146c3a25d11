#include "performer/ops/backends/cuda_step.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "performer/kernels/cuda/decode/decode.h"
#include "performer/ops/backends/cuda.h"
#include "performer/ops/backends/pointers.h"
#include "performer/ops/last_kernel.h"

namespace performer {

bool step_cuda(const FavorArgs& args, const Tensor& out, const FavorState& to) {
  const bool one_token =
      args.causal && !args.packed() && args.q.size(2) == 1 && args.state_kv.defined();
  if (!one_token || !any_cuda_kernel(args)) return false;
  const c10::cuda::CUDAGuard guard(args.q.device());
  kernels::cuda::Device device;
  C10_CUDA_CHECK(kernels::cuda::current_device(device));
  const KernelCall call(args);
  if (!kernels::cuda::decode::serves(call.problem, device)) return false;
  C10_CUDA_CHECK(kernels::cuda::decode::step(call.problem, token_view(out),
                                             state_view(to.kv, to.normalizer, to.log2_scale),
                                             device, c10::cuda::getCurrentCUDAStream()));
  set_last_kernel(kernel_name("cuda/decode", args));
  return true;
}

}  // namespace performer
