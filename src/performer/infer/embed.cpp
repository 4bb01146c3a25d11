#include "performer/infer/embed.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <span>
#include <string_view>

#include "performer/core/error.h"

namespace performer::infer {
namespace {

// Whether a failure is one of memory, which fewer rows may cure.
bool is_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  return std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

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

std::vector<std::vector<std::int64_t>> plan_batches(const std::vector<std::int64_t>& lengths,
                                                    std::int64_t tokens) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
  std::ranges::stable_sort(order,
                           [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
  std::vector<std::vector<std::int64_t>> batches;
  for (const std::int64_t i : order) {
    const bool fits =
        !batches.empty() && length(batches.back().front()) <=
                                tokens / (static_cast<std::int64_t>(batches.back().size()) + 1);
    if (!fits) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

Embedder::Embedder(models::Transformer& model, const data::TokenSpace& space,
                   const EmbedOptions& options)
    : model_(model), space_(space), options_(options) {
  const auto layers = model->config().layers;
  if (options.layer < -1 || options.layer > layers) {
    fail(
        ExitCode::kUsage,
        "--layer: the model has layers 0 (the embeddings) to {}, or -1 for the last with its norm; "
        "got {}",
        layers, options.layer);
  }
  if (options.layer >= 0 && model->config().reversible) {
    fail(ExitCode::kUsage, "--layer {}: layers of a reversible model have two streams; take -1",
         options.layer);
  }
}

std::int64_t Embedder::tokens(const data::WholeSequences& sequences, std::int64_t sequence) const {
  const auto all = sequences.tokens(sequence);
  return options_.length > 0 ? std::min(all, options_.length) : all;
}

Embedder::Rows Embedder::load(const data::WholeSequences& sequences,
                              std::span<const std::int64_t> batch) const {
  std::int64_t longest = 1;
  for (const auto i : batch) longest = std::max(longest, tokens(sequences, i));
  const auto rows = static_cast<std::int64_t>(batch.size());
  const at::Tensor ids =
      at::full({rows, longest}, std::max<std::int64_t>(0, space_.pad), at::kLong);
  const at::Tensor real = at::zeros({rows, longest}, at::kBool), regular = at::zeros_like(real);
  for (std::int64_t b = 0; b < rows; ++b) {
    const auto i = batch[static_cast<std::size_t>(b)];
    const auto count = tokens(sequences, i);
    auto* row = ids.data_ptr<std::int64_t>() + b * longest;
    sequences.read(i, 0, {row, static_cast<std::size_t>(count)});
    real.select(0, b).narrow(0, 0, count).fill_(true);
    auto* marks = regular.data_ptr<bool>() + b * longest;
    for (std::int64_t t = 0; t < count; ++t) marks[t] = space_.is_regular(row[t]);
  }
  return {ids, real, regular};
}

void Embedder::run_at_once(const data::WholeSequences& sequences,
                           std::span<const std::int64_t> batch, const Take& take) {
  const at::NoGradGuard no_grad;
  const Rows rows = load(sequences, batch);
  const auto device = model_->parameters().front().device();
  models::ModelInput input{rows.tokens.to(device), {}};
  if (!rows.real.all().item<bool>()) input.key_mask = rows.real.to(device);
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
  try {
    return run_at_once(sequences, batch, take);
  } catch (const std::exception& error) {
    if (!is_memory(error)) throw;
    if (batch.size() == 1) {
      fail(ExitCode::kOutOfMemory,
           "sequence {} of {} tokens does not fit into the memory alone; take --length for its "
           "beginning, a narrower --precision or a device with more memory",
           batch.front() + 1, tokens(sequences, batch.front()));
    }
  }
  const auto half = batch.size() / 2;
  run(sequences, batch.first(half), take);
  run(sequences, batch.subspan(half), take);
}

}  // namespace performer::infer
