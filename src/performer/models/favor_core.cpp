#include "performer/models/favor_core.h"

#include <ATen/ATen.h>

#include "performer/models/random_projection.h"
#include "performer/ops/favor/step.h"

namespace performer::models {

static_assert(kMostNear == kMaxNear);  // of recipes, which know no operators

FavorCore::FavorCore(const ModelConfig& config, std::int64_t layer)
    : config_(config.attention),
      layer_(layer),
      key_heads_(config.key_heads()),
      head_dim_(config.head_dim()) {
  options_.feature_map = parse_feature_map(config_.kernel);
  options_.causality = config.causal ? Causality::kCausal : Causality::kBidirectional;
  options_.renormalize = config_.renormalize ? Renormalize::kYes : Renormalize::kNo;
  options_.near = config_.near;
  if (config_.features == 0 && config_.near > 0) projection_ = at::empty({0, head_dim_});
  if (config_.scale > 0) options_.scale = config_.scale;
  if (config_.eps >= 0) options_.eps = config_.eps;
  if (config_.projection == "fitted")
    fitted_ = register_module("features", FittedFeatures(config, layer));
  redraw(0);
}

void FavorCore::redraw(std::int64_t draw) {
  if (config_.features == 0 || !fitted_.is_empty()) return;
  projection_ = draw_for(config_, {key_heads_, head_dim_, layer_}, draw);
}

const Tensor& FavorCore::projection_on(at::Device device) {
  if (!fitted_.is_empty()) return fitted_->query_weight;
  if (projection_.defined() && projection_.device() != device) projection_ = projection_.to(device);
  return projection_;
}

FavorOptions FavorCore::options_for(const Heads& heads) const {
  FavorOptions options = options_;
  if (!fitted_.is_empty()) fitted_->add_to(options, heads);
  return options;
}

Tensor FavorCore::forward(const Heads& heads, const Tensor& key_mask) {
  FavorOptions options = options_for(heads);
  options.key_mask = key_mask;
  return favor_attention(heads.q, heads.k, heads.v, projection_on(heads.q.device()), options);
}

Tensor FavorCore::decode(const Heads& heads, LayerState& state, std::int64_t /*position*/) {
  const Tensor& W = projection_on(heads.q.device());
  FavorOptions options = options_for(heads);
  options.initial_state = state.favor;
  if (state.favor.defined() && heads.q.size(2) == 1 && !at::GradMode::is_enabled()) {
    // A step compares nothing: that would wait for the device.
    if (!state.compared || !state.projection.is_same(W)) {
      check_favor_state(heads.q, heads.k, heads.v, W, options);
      state.compared = true, state.projection = W;
    }
    return favor_step_in_place(heads.q, heads.k, heads.v, W, options);
  }
  auto [out, after] = favor_attention_with_state(heads.q, heads.k, heads.v, W, options);
  state.favor = std::move(after);
  state.compared = true, state.projection = W;
  return out;
}

ModelConfig linear_transformer(ModelConfig config) {
  config.attention.kernel = "elu1";
  config.attention.features = 0;
  config.attention.near = 0;
  config.attention.eps = -1;
  return config;
}

}  // namespace performer::models
