#pragma once

#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/state.h"

namespace performer {

/// The decode kernel of CUDA (kernels/cuda/decode): out [B, H, 1, Dv] and the state after the token
/// in `to`, which may be the call's own. False where it does not serve the call, and nothing was
/// done: more than one token, no state, packed sequences, or what no CUDA kernel serves. Where
/// PERFORMER_CUDA_KERNELS names a path, that path serves and not this one.
bool step_cuda(const FavorArgs& args, const Tensor& out, const FavorState& to);

}  // namespace performer
