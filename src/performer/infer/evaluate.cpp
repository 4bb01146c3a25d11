#include "performer/infer/evaluate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "performer/infer/loss.h"

namespace performer::infer {

double Evaluation::loss() const { return loss_sum / static_cast<double>(targets); }
double Evaluation::accuracy() const { return correct / static_cast<double>(targets); }
double Evaluation::perplexity() const { return std::exp(loss()); }
double Evaluation::bits() const { return loss() / std::numbers::ln2; }

namespace {

void add_batch(models::Transformer& model, const PlacedBatch& batch, Evaluation& result) {
  const auto parts = compute_loss(model, batch);
  result.loss_sum += parts.sum.item<double>();
  result.correct += parts.correct.item<double>();
}

void add_rows(models::Transformer& model, const PlacedBatch& batch,
              const EvaluationOptions& options, Evaluation& result) {
  const auto losses = compute_row_losses(model, batch);
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const RowScore score{losses.sum[row].item<double>(), losses.correct[row].item<double>(),
                         losses.count[row].item<std::int64_t>()};
    options.on_row(batch.samples[i], score);
    result.loss_sum += score.loss_sum;
    result.correct += score.correct;
  }
}

}  // namespace

Evaluation evaluate(models::Transformer& model, const data::BatchStream& rows,
                    const EvaluationOptions& options) {
  at::NoGradGuard no_grad;
  const auto begin = std::chrono::steady_clock::now();
  const bool was_training = model->is_training();
  model->eval();
  const auto size = rows.size();
  auto batches = 1 + (size - 1) / options.batch;
  if (options.max_batches > 0) batches = std::min(batches, options.max_batches);
  Evaluation result;
  for (std::int64_t i = 0; i < batches; ++i) {
    const auto first = i * options.batch;
    const auto count = std::min(options.batch, size - first);
    const auto batch = place(rows.batch(first, count), options.device);
    options.on_row ? add_rows(model, batch, options, result) : add_batch(model, batch, result);
    result.targets += batch.num_targets;
    result.tokens += batch.num_tokens;
    result.samples += count;
    if (options.progress) options.progress(i + 1, batches);
  }
  model->train(was_training);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace performer::infer
