#include "performer/train/loss.h"

#include <ATen/ATen.h>

namespace performer::train {
namespace {

// logits: [N, C];  targets: [N], kIgnore where there is none.
LossParts cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t count) {
  const auto log_p = at::log_softmax(logits, -1, at::kFloat);
  auto sum = at::nll_loss(log_p, targets, {}, at::Reduction::Sum, data::kIgnore);
  auto correct = at::eq(at::argmax(logits.detach(), -1), targets).sum().to(at::kFloat);
  return {std::move(sum), std::move(correct), count};
}

LossParts language_model_loss(models::Transformer& model, const PlacedBatch& batch) {
  auto hidden = model->hidden({batch.tokens, batch.key_mask});  // [B, L, E]
  hidden = hidden.reshape({-1, hidden.size(-1)});
  auto targets = batch.targets.reshape({-1});
  if (batch.positions.defined()) {  // few targets: no logits for the other positions
    hidden = hidden.index_select(0, batch.positions);
    targets = targets.index_select(0, batch.positions);
  }
  return cross_entropy(model->logits(hidden), targets, batch.num_targets);
}

}  // namespace

LossParts compute_loss(models::Transformer& model, const PlacedBatch& batch) {
  const auto& head = model->config().head;
  if (head == "lm") return language_model_loss(model, batch);
  const models::ModelInput first{batch.tokens, batch.key_mask};
  const auto logits = head == "match" ? model->match(first, {batch.tokens_b, batch.key_mask_b})
                                      : model->classify(first);
  return cross_entropy(logits, batch.targets, batch.num_targets);
}

PlacedBatch place(const data::Batch& batch, at::Device device) {
  PlacedBatch placed{batch, {}};
  if (batch.targets.dim() == 2 && 2 * batch.num_targets < batch.targets.numel()) {
    placed.positions = batch.targets.reshape({-1}).ne(data::kIgnore).nonzero().squeeze(1);
  }
  if (device.is_cpu()) return placed;
  for (auto* tensor : {&placed.tokens, &placed.targets, &placed.key_mask, &placed.positions,
                       &placed.tokens_b, &placed.key_mask_b}) {
    if (tensor->defined()) *tensor = tensor->to(device, /*non_blocking=*/true);
  }
  return placed;
}

}  // namespace performer::train
