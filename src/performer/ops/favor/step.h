#pragma once

#include <utility>

#include "performer/ops/favor/attention.h"

namespace performer {

/// One more token: q, k, v of length 1 and the state so far (undefined: none). O(M' (D + Dv)) per
/// head; without gradients one kernel on CUDA.
std::pair<Tensor, FavorState> favor_step(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& W, const FavorState& state,
                                         FavorOptions options = {});

/// favor_step that writes the next state over options.initial_state, whose tensors must be
/// contiguous: what a stream that nobody forks needs. One launch on CUDA, which a graph can record.
/// No gradients. The fingerprint is not compared, so that nothing waits for a device:
/// check_favor_state does that, once a stream. Returns [B, H, 1, Dv].
Tensor favor_step_in_place(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                           const FavorOptions& options);

/// Throws unless options.initial_state was made with this W and these options. Waits for the
/// device; does nothing while a graph is captured.
void check_favor_state(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                       const FavorOptions& options);

}  // namespace performer
