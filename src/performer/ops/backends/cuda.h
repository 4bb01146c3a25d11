#pragma once

#include <array>
#include <cstdint>

#include "performer/kernels/fingerprint.h"
#include "performer/ops/backends/call.h"
#include "performer/ops/favor/state.h"

// The fused CUDA kernels, as cpu.h has the CPU's. A build without CUDA has all of these too
// (no_cuda.cpp) and serves nothing. float32 is computed in float32: nothing here is rounded to
// tf32, whatever torch.backends allows.
namespace performer::backends {

/// Whether this build has them.
bool has_cuda_kernels();

/// Whether the kernels of `path` compute the pass of the call on its device.
bool serves_cuda(Path path, Pass pass, const Call& call);

/// Throws: PERFORMER_CUDA_KERNELS names hopper, and portable alone would serve.
void refuse_hopper(const FavorArgs& args, Pass pass);

/// The forward pass of kCudaHopper or kCudaPortable, into the outputs of `result` (its fingerprint
/// is the caller's).
void forward_cuda(Path path, const Call& call, const FavorResult& result);

/// kCudaDecode (kernels/cuda/decode): out [B, H, 1, Dv], and the state after the token in `to`,
/// which may be the call's own.
void step_cuda(const Call& call, const Tensor& out, const FavorState& to);

/// The gradients of q, k, v and the initial state; `saved` is of the same path.
void backward_cuda(Path path, const Call& call, const FavorSaved& saved,
                   const FavorGradients& gradients);

/// The fingerprint of parameters on `device` that have `seed` mixed in (kernels/fingerprint.h),
/// int64 [1] there; undefined where no kernel computes it.
Tensor fingerprint_cuda(const std::array<Tensor, kernels::kFingerprintTensors>& parameters,
                        std::uint64_t seed, at::Device device);

/// Whether the current stream of `device` records a graph: no value can be read then.
bool capturing_cuda_graph(at::Device device);

}  // namespace performer::backends
