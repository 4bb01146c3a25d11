#include "performer/pretrained/swap.h"

#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/run/progress.h"

namespace performer::pretrained {

void choose_attention(const ConvertOptions& options, models::ModelConfig& model) {
  const double scale = model.attention.scale;
  model.attention = {};
  model.attention.scale = scale;
  model.layer_kinds.clear();
  if (!options.favor) {
    model.attention.kind = "exact";
    return;
  }
  model.attention.kind = "favor";
  if (options.refine) {
    model.attention.kernel = "loglinear";
    model.attention.projection = "fitted";
  }
  model.attention.features = options.features;
  model.attention.near = options.near.value_or(model.causal ? kCausalNear : 0);
  model.attention.seed = options.seed;
  if (options.keep_exact.empty()) return;
  model.layer_kinds.assign(static_cast<std::size_t>(model.layers), "favor");
  for (const auto layer : options.keep_exact) {
    if (layer < 0 || layer >= model.layers) {
      fail(ExitCode::kUsage, "--keep-exact: the layers are 0 to {}, got {}", model.layers - 1,
           layer);
    }
    model.layer_kinds[static_cast<std::size_t>(layer)] = "exact";
  }
}

run::CheckpointContent content_of(const models::Transformer& model, const run::Recipe& recipe) {
  run::CheckpointContent content;
  for (const auto& item : model->named_parameters()) {
    content.model.emplace_back(item.key(), item.value());
  }
  for (const auto& item : model->named_buffers()) {
    content.model.emplace_back(item.key(), item.value());
  }
  content.config_json = run::recipe_to_json(recipe);
  content.trainer_json = run::progress_to_json({}, {{"draw", 0}});
  return content;
}

}  // namespace performer::pretrained
