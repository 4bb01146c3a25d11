#pragma once

#include "performer/data/token_space.h"
#include "performer/models/transformer.h"
#include "performer/run/recipe.h"
#include "performer/run/tensor_file.h"

namespace performer::run {

/// Vocabulary and number of classes follow from the data; a recipe that names others is refused.
Recipe fitted_to(Recipe recipe, const data::TokenSpace& space);

models::Transformer make_model(const Recipe& recipe, at::Device device);

/// All that a model's file holds: masters by name, then buffers.
NamedTensors model_tensors(const models::Transformer& model, const NamedTensors& masters);

}  // namespace performer::run
