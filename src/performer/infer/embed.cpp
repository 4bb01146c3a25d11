#include "performer/infer/embed.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "performer/core/error.h"
#include "performer/infer/sequence_batch.h"

namespace performer::infer {
namespace {

// Of the tokens that `chosen` marks, [B, L]; 0 where none is.
at::Tensor mean_of(const at::Tensor& hidden, const at::Tensor& chosen) {
  const at::Tensor weight = chosen.to(at::kFloat).unsqueeze(-1);
  return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1);
}

}  // namespace

Pool parse_pool(const std::string& name) {
  if (name == "mean") return Pool::kMean;
  if (name == "mean-all") return Pool::kMeanAll;
  if (name == "first") return Pool::kFirst;
  if (name == "none") return Pool::kNone;
  fail(ExitCode::kUsage, "--pool: mean, mean-all, first or none, got '{}'", name);
}

Embedder::Embedder(models::Transformer& model, const data::TokenSpace& space,
                   const EmbedOptions& options)
    : model_(model), space_(space), options_(options) {
  const auto layers = model->config().layers;
  if (options.layer < -layers - 1 || options.layer > layers) {
    fail(ExitCode::kUsage,
         "--layer: the model has layers 0 (the embeddings) to {}, or from the end -1 (the last, "
         "with its norm) to {} (the embeddings); got {}",
         layers, -layers - 1, options.layer);
  }
  if (options.layer != -1 && model->config().reversible) {
    fail(ExitCode::kUsage, "--layer {}: layers of a reversible model have two streams; take -1",
         options.layer);
  }
  if (options_.layer < -1) options_.layer += layers + 1;
}

std::int64_t Embedder::tokens(const data::WholeSequences& sequences, std::int64_t sequence) const {
  const auto all = sequences.tokens(sequence);
  return options_.length > 0 ? std::min(all, options_.length) : all;
}

void Embedder::run_at_once(const data::WholeSequences& sequences,
                           std::span<const std::int64_t> batch, const Take& take) {
  const at::NoGradGuard no_grad;
  const SequenceBatch rows = read_batch(sequences, space_, batch, options_.length);
  const auto device = model_->parameters().front().device();
  const models::ModelInput input = rows.input(device);
  const at::Tensor hidden =
      (options_.layer < 0 ? model_->hidden(input) : model_->hidden_after(input, options_.layer))
          .to(at::kFloat);
  at::Tensor vectors;
  if (options_.pool == Pool::kMean) vectors = mean_of(hidden, rows.regular.to(device));
  if (options_.pool == Pool::kMeanAll) vectors = mean_of(hidden, rows.real.to(device));
  if (options_.pool == Pool::kFirst) vectors = hidden.select(1, 0);
  if (vectors.defined()) vectors = vectors.cpu().contiguous();
  for (std::size_t b = 0; b < batch.size(); ++b) {
    const auto row = static_cast<std::int64_t>(b);
    if (vectors.defined()) {
      take(batch[b], vectors.select(0, row));
    } else {
      const at::Tensor places = rows.regular.select(0, row).nonzero().squeeze(-1);
      take(batch[b], hidden.select(0, row).cpu().index_select(0, places).contiguous());
    }
  }
}

void Embedder::run(const data::WholeSequences& sequences, std::span<const std::int64_t> batch,
                   const Take& take) {
  run_in_halves(
      batch, [&](auto rows) { run_at_once(sequences, rows, take); },
      [&](std::int64_t row) {
        fail(ExitCode::kOutOfMemory,
             "sequence {} of {} tokens does not fit into the memory alone; take --length for its "
             "beginning, a narrower --precision or a device with more memory",
             row + 1, tokens(sequences, row));
      });
}

}  // namespace performer::infer
