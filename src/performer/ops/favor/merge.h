#pragma once

#include "performer/ops/favor/attention.h"
#include "performer/ops/favor/state.h"

namespace performer {

/// The state after the keys of `earlier` and then those of `later`. Both must come from the same
/// projection, map and scale. Differentiable in kv and normalizer; associative to rounding.
/// With a near field, `earlier` must end with a whole block, W and the options (feature_map, scale,
/// projection_k, bias_k) must be those of both, since keys that leave the near field on the way
/// become features, and the near field's keys, values and biases are differentiable, too. `later`
/// begins with its first real token.
FavorState merge_states(const FavorState& earlier, const FavorState& later, const Tensor& W = {},
                        const FavorOptions& options = {});

}  // namespace performer
