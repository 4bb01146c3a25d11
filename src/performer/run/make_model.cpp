#include "performer/run/make_model.h"

#include <cstdint>

#include "performer/core/error.h"
#include "performer/core/machine_memory.h"
#include "performer/core/size.h"
#include "performer/models/model_cost.h"

namespace performer::run {
namespace {

// Most systems grant more memory than they have, and end the program when it is used.
void check_fits(const models::ModelConfig& model) {
  const auto parameters = models::estimate(model, {.batch = 1, .length = 1}).parameters;
  const Size projections =
      model.attention.kind == "favor"
          ? Size(model.layers) * model.key_heads() * model.head_dim() * model.attention.features
          : 0;  // [key heads, features, head width] a layer
  const Size bytes = (parameters + projections) * 4;
  if (bytes.value() <= machine_memory()) return;
  constexpr double kGiB = 1 << 30;
  fail(ExitCode::kOutOfMemory,
       "model: its {} parameters take {:.1f} GiB, this machine has {:.1f}; lower model.layers "
       "({}), model.dim ({}) or model.vocabulary ({})",
       parameters, static_cast<double>(bytes.value()) / kGiB,
       static_cast<double>(machine_memory()) / kGiB, model.layers, model.dim, model.vocabulary);
}

}  // namespace

Recipe fitted_to(Recipe recipe, const data::TokenSpace& space) {
  const auto fit = [](std::int64_t& value, std::int64_t needed, const char* key) {
    if (value == 0) value = needed;
    if (value != needed) {
      fail(ExitCode::kUsage, "{}: the data need {}, got {}; leave it out", key, needed, value);
    }
  };
  fit(recipe.model.vocabulary, space.vocabulary, "model.vocabulary");
  const auto& head = recipe.model.head;
  if (head == "classify" || head == "match")
    fit(recipe.model.classes, space.num_classes(), "model.classes");
  check(recipe);
  return recipe;
}

models::Transformer make_model(const Recipe& recipe, at::Device device) {
  check_fits(recipe.model);
  models::Transformer model(recipe.model, static_cast<std::uint64_t>(recipe.seed));
  model->to(device);
  return model;
}

NamedTensors model_tensors(const models::Transformer& model, const NamedTensors& masters) {
  auto tensors = masters;
  for (const auto& item : model->named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

}  // namespace performer::run
