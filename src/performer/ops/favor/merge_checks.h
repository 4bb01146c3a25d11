#pragma once

#include "performer/ops/favor/arguments.h"
#include "performer/ops/favor/attention.h"
#include "performer/ops/favor/state.h"

namespace performer {

inline constexpr const char* kMerge = "merge_states";

/// Both states belong to one projection, map and scale, as far as their fingerprints say.
void check_fingerprints(const FavorState& earlier, const FavorState& later);

/// The rules on two states with a near field, and on what their keys become features with. What
/// follows indexes by these shapes and values.
void check_near_merge(const FavorState& earlier, const FavorState& later, const Tensor& W,
                      const FavorOptions& options);

/// Keys that leave the near field, the first block of `state`, as a call that sums their features.
FavorArgs leaving_block(const FavorState& state, const Tensor& W, const FavorOptions& options);

}  // namespace performer
