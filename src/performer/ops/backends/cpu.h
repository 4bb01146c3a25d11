#pragma once

#include "performer/ops/backends/call.h"

namespace performer::backends {

/// Whether the processor has the instructions of `path`, and its kernels serve the call. Under
/// `auto` also whether they are worth it.
bool serves_cpu(Path path, Switch chosen, const Call& call);

/// The forward pass of a path that serves, into the outputs of `result` (its fingerprint is the
/// caller's).
void forward_cpu(Path path, const Call& call, const FavorResult& result);

/// The gradients of q, k, v and the initial state. False where norms outgrow the range of the
/// causal pass; `gradients` are then undefined.
bool backward_cpu(Path path, const Call& call, const FavorSaved& saved,
                  const FavorGradients& gradients);

}  // namespace performer::backends
