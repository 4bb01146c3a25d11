#pragma once

#include "performer/ops/favor/results.h"

namespace performer {

/// The fused kernels' forward pass, into the outputs of `result` (its fingerprint is the caller's).
/// False where they do not serve the call, and nothing was done: float64, trigonometric features,
/// renormalize=False, or kernels switched off.
bool forward_cpu(const FavorArgs& args, const FavorResult& result);

/// The same for the gradients of q, k, v and the initial state. False also where a parameter's
/// gradient is needed, where query heads of one key head have key parameters of their own, and
/// where norms outgrow the range of the causal pass; `gradients` are then undefined.
bool backward_cpu(const FavorSaved& saved, const FavorArgs& args, const FavorGradients& gradients);

/// Whether forward_cpu serves the call: what it left are then the rounding errors of its own path.
bool served_by_cpu_kernels(const FavorArgs& args);

}  // namespace performer
