#pragma once

#include "performer/models/attention_core.h"

namespace performer::models {

/// The paper's "OPT": attention that returns V, a bound on what any attention can cost. The layer
/// keeps all its projections.
class IdentityCore : public AttentionCore {
 public:
  Uses uses() const override { return Uses::kValues; }
  Tensor forward(const Heads& heads, const Tensor& /*key_mask*/) override { return heads.v; }
  Tensor decode(const Heads& heads, LayerState& /*state*/, std::int64_t /*position*/) override {
    return heads.v;
  }
  bool recordable() const override { return true; }
};

}  // namespace performer::models
