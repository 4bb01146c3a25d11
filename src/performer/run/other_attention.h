#pragma once

#include <string>
#include <vector>

#include "performer/run/recipe.h"

namespace performer::run {

/// The recipe of a run with another attention for the same weights: assignments of
/// model.attention.* and model.layer_kinds, as `--set` takes them. Attentions that need weights
/// which the run has not, and every other key, are refused (kUsage). Random projections are those
/// of the run's model.attention.seed and draw number.
Recipe with_other_attention(Recipe recipe, const std::vector<std::string>& assignments);

}  // namespace performer::run
