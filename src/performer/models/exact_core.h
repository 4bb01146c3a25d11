#pragma once

#include <optional>

#include "performer/models/attention_core.h"

namespace performer::models {

/// Softmax attention by LibTorch's fused kernels; the stream keeps all keys and values.
class ExactCore : public AttentionCore {
 public:
  explicit ExactCore(const ModelConfig& config);
  Tensor forward(const Heads& heads, const Tensor& key_mask) override;
  Tensor decode(const Heads& heads, LayerState& state, std::int64_t position) override;

 private:
  bool causal_, grouped_;
  std::optional<double> scale_;
};

}  // namespace performer::models
