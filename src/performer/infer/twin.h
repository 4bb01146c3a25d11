#pragma once

#include "performer/models/transformer.h"
#include "performer/run/recipe.h"

namespace performer::infer {

/// The same weights with exact attention in every layer.
run::Recipe exact_recipe(run::Recipe recipe);

/// The same weights with FAVOR+ of `features` random features in every layer: positive orthogonal
/// ones, not fitted. Of a near field the recipe's stays.
run::Recipe favor_recipe(run::Recipe recipe, std::int64_t features);

/// A copy of the model, in eval(), with the attention that `recipe` names. Buffers of fitted
/// features, which the copy may not have, stay behind.
models::Transformer twin_of(const models::Transformer& model, const run::Recipe& recipe);

}  // namespace performer::infer
