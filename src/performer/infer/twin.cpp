#include "performer/infer/twin.h"

#include <ATen/core/grad_mode.h>

#include "performer/run/make_model.h"

namespace performer::infer {

run::Recipe exact_recipe(run::Recipe recipe) {
  const double scale = recipe.model.attention.scale;
  recipe.model.attention = {};
  recipe.model.attention.kind = "exact";
  recipe.model.attention.scale = scale;
  recipe.model.layer_kinds.clear();
  return recipe;
}

run::Recipe favor_recipe(run::Recipe recipe, std::int64_t features) {
  const auto before = recipe.model.attention;
  recipe = exact_recipe(std::move(recipe));
  recipe.model.attention.kind = "favor";
  recipe.model.attention.features = features;
  recipe.model.attention.near = before.near;
  recipe.model.attention.seed = before.seed;
  return recipe;
}

models::Transformer twin_of(const models::Transformer& model, const run::Recipe& recipe) {
  const at::NoGradGuard no_grad;
  models::Transformer twin = run::make_model(recipe, model->parameters().front().device());
  auto own = twin->named_parameters();
  for (const auto& item : model->named_parameters()) own[item.key()].copy_(item.value());
  auto buffers = twin->named_buffers();
  for (const auto& item : model->named_buffers()) {
    if (auto* buffer = buffers.find(item.key())) buffer->copy_(item.value());
  }
  twin->eval();
  return twin;
}

}  // namespace performer::infer
