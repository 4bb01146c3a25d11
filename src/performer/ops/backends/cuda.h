#pragma once

#include <array>
#include <cstdint>

#include "performer/kernels/fingerprint.h"
#include "performer/ops/favor/results.h"

// The fused CUDA kernels, in the manner of favor_attention_cpu.h. A build without CUDA has all of
// these too and serves nothing (favor_attention_no_cuda.cpp). The variable PERFORMER_CUDA_KERNELS,
// read at each call, chooses: auto (the default: decode for one token after a state, hopper where
// it serves, else portable), portable, hopper (an error where portable alone would serve), off.
// float32 is computed in float32: nothing here is rounded to tf32, whatever torch.backends allows.
namespace performer {

/// False where they do not serve the call, and nothing was done: float64, trigonometric features,
/// generalised maps but relu, renormalize=False, widths over 256, or kernels switched off.
bool forward_cuda(const FavorArgs& args, const FavorResult& result);

/// The same for the gradients of q, k, v and the initial state. False also where a parameter's
/// gradient is needed, where query heads of one key head have key parameters of their own, and
/// without the forward pass's out.
bool backward_cuda(const FavorSaved& saved, const FavorArgs& args, const FavorGradients& gradients);

/// Whether the call is of a kind that CUDA kernels serve, and PERFORMER_CUDA_KERNELS leaves the
/// choice among them.
bool any_cuda_kernel(const FavorArgs& args);

/// Whether forward_cuda serves the call.
bool served_by_cuda_kernels(const FavorArgs& args);

/// The fingerprint of parameters on `device` that have `seed` mixed in (kernels/fingerprint.h),
/// int64 [1] there; undefined where no kernel computes it.
Tensor fingerprint_cuda(const std::array<Tensor, kernels::kFingerprintTensors>& parameters,
                        std::uint64_t seed, at::Device device);

/// Whether the current stream of `device` records a graph: no value can be read then.
bool capturing_cuda_graph(at::Device device);

}  // namespace performer
