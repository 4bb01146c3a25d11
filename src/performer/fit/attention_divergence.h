#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/models/attention_core.h"
#include "performer/models/fitted_features.h"

namespace performer::fit {

using at::Tensor;

/// Which keys a row of short sequences sees, and which of them exactly.
struct Sight {
  Tensor seen;  // bool [B, 1, L, L]
  Tensor near;  // bool [L, L] of the keys that weigh exp(q.k) itself; undefined: none
  Tensor real;  // bool [B, L], rows that count

  /// key_mask: bool [B, L], undefined: all are real, padding at the end.
  Sight(const Tensor& key_mask, at::IntArrayRef batch_length, bool causal, std::int64_t near_block);
};

/// Log weights of all pairs, unnormalised, -inf where they are not seen: [B, H, L, L].
Tensor exact_log_weights(const models::Heads& heads, double scale, const Sight& sight);
/// Those of the features, exact ones in the near field.
Tensor feature_log_weights(const models::FittedFeaturesImpl& features, const models::Heads& heads,
                           const Sight& sight);

/// KL(exact attention || attention by the features), the mean over heads and rows: a scalar.
Tensor attention_divergence(const models::FittedFeaturesImpl& features, const models::Heads& heads,
                            const Sight& sight);

}  // namespace performer::fit
