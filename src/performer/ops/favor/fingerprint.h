#pragma once

#include "performer/ops/favor/arguments.h"

namespace performer {

/// Identifies what the features of a call's keys depend on: shape, bit sum and a sample of W,
/// projection_k and bias_k, the map, scale and eps. int64 [1] on q's device, where it is computed:
/// nothing waits for a GPU. The same number on every device.
Tensor favor_fingerprint(const FavorArgs& args);

/// The state's own fingerprint, if it has one, must be this call's. Reads both, so that a call on
/// CUDA with a state waits for the device; not checked while a graph is captured.
void check_state_fingerprint(const FavorArgs& args, const Tensor& fingerprint);

}  // namespace performer
