#pragma once

#include <functional>

#include "performer/ops/favor/results.h"

namespace performer::backends {

/// `saved` with the results of `forward` in place of those of another path. Weights must be divided
/// by sums of these same weights: at large norms two paths round exponents differently, and rows
/// would no longer sum to 1.
FavorSaved replay_forward(const FavorSaved& saved, const FavorArgs& args,
                          const std::function<void(const FavorArgs&, const FavorResult&)>& forward);

}  // namespace performer::backends
