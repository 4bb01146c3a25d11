#pragma once

#include "performer/ops/favor/results.h"

// The operator on ATen alone, for every device, dtype, map and option: what serves where no kernel
// does.
namespace performer::backends {

/// The forward pass, into the outputs of `result`, rows included (its fingerprint is the caller's).
void forward_composed(const FavorArgs& args, const FavorResult& result);

/// All gradients that are asked for; `saved` is of forward_composed.
void backward_composed(const FavorSaved& saved, const FavorArgs& args,
                       const FavorGradients& gradients);

}  // namespace performer::backends
