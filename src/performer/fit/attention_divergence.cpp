#include "performer/fit/attention_divergence.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace performer::fit {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
// Weights this far below the largest of their row count as this, so that their logarithm is finite.
constexpr double kLeast = 1e-30;

Tensor spread(const Tensor& keys, std::int64_t heads) {
  return keys.size(1) == heads ? keys : keys.repeat_interleave(heads / keys.size(1), 1);
}

}  // namespace

Sight::Sight(const Tensor& key_mask, at::IntArrayRef batch_length, bool causal,
             std::int64_t near_block) {
  const auto batch = batch_length[0], length = batch_length[1];
  const auto place = at::arange(length, key_mask.defined() ? key_mask.device() : at::kCPU);
  real = key_mask.defined() ? key_mask : at::ones({batch, length}, at::kBool);
  const Tensor rows = place.unsqueeze(1), columns = place.unsqueeze(0);
  seen = real.view({batch, 1, 1, length}).expand({batch, 1, length, length});
  if (causal) seen = seen.logical_and(columns.le(rows));
  if (near_block == 0) return;
  const auto apart = rows.floor_divide(near_block) - columns.floor_divide(near_block);
  near = apart.abs().le(1);
}

Tensor exact_log_weights(const models::Heads& heads, double scale, const Sight& sight) {
  const Tensor k = spread(heads.k, heads.q.size(1));
  const Tensor scores = at::matmul(heads.q, k.transpose(-2, -1)) * scale;
  return scores.masked_fill(sight.seen.logical_not(), kNone);
}

Tensor feature_log_weights(const models::FittedFeaturesImpl& features, const models::Heads& heads,
                           const Sight& sight) {
  const Tensor log_q = features.log_queries(heads.q);
  const Tensor log_k = spread(features.log_keys(heads.k), heads.q.size(1));
  // One scale a feature and one a row, constants for the gradient.
  const Tensor top = log_k.detach().amax(-2, /*keepdim=*/true);  // [B, H, 1, M]
  const Tensor raised = log_q + top;
  const Tensor row = raised.detach().amax(-1, /*keepdim=*/true);  // [B, H, L, 1]
  const Tensor sums = at::matmul((raised - row).exp(), (log_k - top).exp().transpose(-2, -1));
  const double share = -std::log(static_cast<double>(log_q.size(-1)));
  Tensor weights = sums.clamp_min(kLeast).log() + row + share;
  if (sight.near.defined()) {
    const Tensor k = spread(heads.k, heads.q.size(1));
    const Tensor exact = at::matmul(heads.q, k.transpose(-2, -1)) * features.scale();
    weights = at::where(sight.near, exact, weights);
  }
  return weights.masked_fill(sight.seen.logical_not(), kNone);
}

Tensor attention_divergence(const models::FittedFeaturesImpl& features, const models::Heads& heads,
                            const Sight& sight) {
  const Tensor exact = exact_log_weights(heads, features.scale(), sight).log_softmax(-1);
  const Tensor estimate = feature_log_weights(features, heads, sight).log_softmax(-1);
  const Tensor unseen = sight.seen.logical_not();
  const Tensor difference = (exact - estimate).masked_fill(unseen, 0);
  const Tensor divergence = (exact.exp() * difference).sum(-1);  // [B, H, L]
  const Tensor count = sight.real.unsqueeze(1).expand_as(divergence);
  return divergence.masked_fill(count.logical_not(), 0).sum() / count.sum();
}

}  // namespace performer::fit
