#pragma once

#include <optional>

#include "performer/models/attention_core.h"

namespace performer::models {

/// Linformer: softmax attention to K = linformer_k mixtures of the keys and values,
///   softmax(scale Q (E K)ᵀ) (F V),  E, F: [K, max_length], cut to the sequence's length,
/// the same for all heads of a layer. Learned (parameters key_projection, value_projection), or
/// random: E = R, F = exp(-delta) R with R normal of variance 1/K, a function of (seed, layer,
/// draw). Bidirectional; a masked key enters no mixture. O(L K) time.
class LinformerCore : public AttentionCore {
 public:
  LinformerCore(const ModelConfig& config, std::int64_t layer);
  Tensor forward(const Heads& heads, const Tensor& key_mask) override;
  Tensor decode(const Heads& heads, LayerState& state, std::int64_t position) override;
  void redraw(std::int64_t draw) override;

 private:
  AttentionConfig config_;
  std::int64_t layer_, max_length_;
  std::optional<double> scale_;
  Tensor key_projection_, value_projection_;  // [K, max_length]; random: float32, not registered
};

}  // namespace performer::models
