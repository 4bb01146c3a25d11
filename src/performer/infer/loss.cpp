#include "performer/infer/loss.h"

#include <ATen/ATen.h>

#include "performer/core/error.h"

namespace performer::infer {
namespace {

struct Scored {
  Tensor logits;   // [N, C]
  Tensor targets;  // [N], kIgnore where there is none
};

LossParts cross_entropy(const Scored& scored, std::int64_t count) {
  const auto log_p = at::log_softmax(scored.logits, -1, at::kFloat);
  auto sum = at::nll_loss(log_p, scored.targets, {}, at::Reduction::Sum, data::kIgnore);
  auto correct =
      at::eq(at::argmax(scored.logits.detach(), -1), scored.targets).sum().to(at::kFloat);
  return {std::move(sum), std::move(correct), count};
}

Scored score_tokens(models::Transformer& model, const PlacedBatch& batch) {
  auto hidden = model->hidden({batch.tokens, batch.key_mask});  // [B, L, E]
  hidden = hidden.reshape({-1, hidden.size(-1)});
  auto targets = batch.targets.reshape({-1});
  if (batch.positions.defined()) {  // few targets: no logits for the other positions
    hidden = hidden.index_select(0, batch.positions);
    targets = targets.index_select(0, batch.positions);
  }
  return {model->logits(hidden), targets};
}

Scored score(models::Transformer& model, const PlacedBatch& batch) {
  const auto& head = model->config().head;
  if (head == "none") {
    fail(ExitCode::kUsage,
         "model.head: none gives hidden states, which have no loss; take a model with an output "
         "layer");
  }
  if (head == "lm") return score_tokens(model, batch);
  const models::ModelInput first{batch.tokens, batch.key_mask};
  const auto logits = head == "match" ? model->match(first, {batch.tokens_b, batch.key_mask_b})
                                      : model->classify(first);
  return {logits, batch.targets};
}

}  // namespace

LossParts compute_loss(models::Transformer& model, const PlacedBatch& batch) {
  return cross_entropy(score(model, batch), batch.num_targets);
}

RowLosses compute_row_losses(models::Transformer& model, const PlacedBatch& batch) {
  const at::NoGradGuard no_grad;
  const auto [logits, targets] = score(model, batch);
  const auto log_p = at::log_softmax(logits, -1, at::kFloat);
  const auto loss = at::nll_loss(log_p, targets, {}, at::Reduction::None, data::kIgnore);  // [N]
  const auto rows = batch.tokens.size(0);
  const auto width = batch.targets.numel() / rows;
  const auto places = batch.positions.defined()
                          ? batch.positions
                          : at::arange(batch.targets.numel(), batch.targets.options());
  const auto row = places.div(width, "floor");  // [N]
  const auto by_row = [&](const Tensor& values) {
    return at::zeros({rows}, at::kDouble).index_add(0, row.cpu(), values.cpu().to(at::kDouble));
  };
  return {by_row(loss), by_row(at::argmax(logits, -1).eq(targets)),
          by_row(targets.ne(data::kIgnore))};
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

}  // namespace performer::infer
