#pragma once

#include "performer/models/attention_core.h"
#include "performer/models/fitted_features.h"
#include "performer/ops/favor/attention.h"

namespace performer::models {

/// FAVOR+ with any feature map, and with a near field where the config has one: without features,
/// that is local attention alone. The projection is drawn for (seed, layer, head, draw), so it is no
/// part of a checkpoint, stays float32 whatever the parameters become, and follows its input's
/// device. With attention.projection = "fitted" the features are buffers of the model instead.
class FavorCore : public AttentionCore {
 public:
  FavorCore(const ModelConfig& config, std::int64_t layer);
  Tensor forward(const Heads& heads, const Tensor& key_mask) override;
  Tensor decode(const Heads& heads, LayerState& state, std::int64_t position) override;
  void redraw(std::int64_t draw) override;
  bool recordable() const override { return true; }

  /// [Hkv, M, D] or [M, D] float32; undefined, or with a near field [0, D], without features.
  const Tensor& projection() const { return projection_; }
  /// Empty unless they are fitted.
  FittedFeatures fitted() const { return fitted_; }

  /// What favor_attention gets beside the heads.
  const Tensor& projection_on(at::Device device);
  FavorOptions options_for(const Heads& heads) const;

 private:
  AttentionConfig config_;
  std::int64_t layer_, key_heads_, head_dim_;
  FavorOptions options_;
  Tensor projection_;
  FittedFeatures fitted_{nullptr};
};

/// The config of the Linear Transformer in favor_attention's terms: elu(x) + 1, no projection.
ModelConfig linear_transformer(ModelConfig config);

}  // namespace performer::models
