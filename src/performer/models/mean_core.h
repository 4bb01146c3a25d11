#pragma once

#include "performer/models/attention_core.h"

namespace performer::models {

/// Plain averaging, the baseline of content-based attention: out_i = mean of v_j over the keys that
/// i may see. A row without keys is 0. Sums in float32 (float64 for float64).
class MeanCore : public AttentionCore {
 public:
  explicit MeanCore(const ModelConfig& config) : causal_(config.causal) {}
  Uses uses() const override { return Uses::kValues; }
  Tensor forward(const Heads& heads, const Tensor& key_mask) override;
  Tensor decode(const Heads& heads, LayerState& state, std::int64_t position) override;

 private:
  bool causal_;
};

}  // namespace performer::models
