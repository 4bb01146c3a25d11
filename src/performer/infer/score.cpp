#include "performer/infer/score.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "performer/core/error.h"
#include "performer/infer/sequence_batch.h"

namespace performer::infer {
namespace {

// Logits of one block.
constexpr std::int64_t kMostLogits = std::int64_t{1} << 24;

}  // namespace

ScoreMethod parse_score_method(const std::string& name) {
  if (name == "masked") return ScoreMethod::kMasked;
  if (name == "wildtype") return ScoreMethod::kWildtype;
  if (name == "pseudo") return ScoreMethod::kWhole;
  fail(ExitCode::kUsage, "--method: masked, wildtype or pseudo, got '{}'", name);
}

std::string name_of(ScoreMethod method) {
  if (method == ScoreMethod::kMasked) return "masked";
  return method == ScoreMethod::kWildtype ? "wildtype" : "pseudo";
}

Scorer::Scorer(models::Transformer& model, const data::TokenSpace& space,
               std::vector<std::int64_t> letters)
    : model_(model), space_(space), letters_(std::move(letters)) {
  if (model->config().head != "lm") {
    fail(ExitCode::kUsage,
         "score: the model's head is '{}'; only models that predict tokens (model.head = \"lm\") "
         "give likelihoods",
         model->config().head);
  }
}

std::vector<std::int64_t> Scorer::places(std::span<const std::int64_t> tokens,
                                         std::int64_t masked) const {
  if (masked != Readings::kNone) return {masked};
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < std::ssize(tokens); ++i) {
    const bool asked = causal() ? i > 0 : space_.is_regular(tokens[static_cast<std::size_t>(i)]);
    if (asked) places.push_back(i);
  }
  return places;
}

// hidden [N, E], asked int64 [N, 1 + letters] -> float32 [N, 1 + letters], with the logits of some
// rows at a time in memory.
at::Tensor Scorer::log_probabilities(const at::Tensor& hidden, const at::Tensor& asked) {
  const auto step = std::max<std::int64_t>(1, kMostLogits / model_->config().vocabulary);
  const at::Tensor result = at::empty(asked.sizes(), asked.options().dtype(at::kFloat));
  for (std::int64_t begin = 0; begin < hidden.size(0); begin += step) {
    const auto count = std::min(step, hidden.size(0) - begin);
    const at::Tensor log_p =
        at::log_softmax(model_->logits(hidden.narrow(0, begin, count)), -1, at::kFloat);
    result.narrow(0, begin, count).copy_(log_p.gather(1, asked.narrow(0, begin, count)));
  }
  return result.cpu();
}

void Scorer::run_at_once(const Readings& readings, std::span<const std::int64_t> batch,
                         const Take& take) {
  const at::NoGradGuard no_grad;
  const SequenceBatch rows = read_batch(readings, space_, batch);
  const auto length = rows.tokens.size(1);
  std::vector<std::int64_t> seen_from, asked, counts;
  for (std::size_t b = 0; b < batch.size(); ++b) {
    const auto* own =
        rows.tokens.const_data_ptr<std::int64_t>() + static_cast<std::int64_t>(b) * length;
    const auto masked = readings.masked(batch[b]);
    const auto where = places({own, static_cast<std::size_t>(readings.tokens(batch[b]))}, masked);
    for (const auto place : where) {
      seen_from.push_back(static_cast<std::int64_t>(b) * length + place - (causal() ? 1 : 0));
      asked.push_back(masked == Readings::kNone ? own[place] : readings.behind_mask(batch[b]));
      asked.insert(asked.end(), letters_.begin(), letters_.end());
    }
    counts.push_back(std::ssize(where));
  }
  const auto device = model_->parameters().front().device();
  const at::Tensor hidden = model_->hidden(rows.input(device)).flatten(0, 1);  // [B L, E]
  const at::Tensor chosen = hidden.index_select(0, at::tensor(seen_from, at::kLong).to(device));
  const auto width = 1 + std::ssize(letters_);
  const at::Tensor log_p = log_probabilities(
      chosen, at::tensor(asked, at::kLong).view({std::ssize(seen_from), width}).to(device));
  std::int64_t begin = 0;
  for (std::size_t b = 0; b < batch.size(); ++b) {
    take(batch[b], log_p.narrow(0, begin, counts[b]));
    begin += counts[b];
  }
}

void Scorer::run(const Readings& readings, std::span<const std::int64_t> batch, const Take& take) {
  run_in_halves(
      batch, [&](auto rows) { run_at_once(readings, rows, take); },
      [&](std::int64_t row) {
        fail(ExitCode::kOutOfMemory,
             "sequence {} of {} tokens does not fit into the memory alone; take a narrower "
             "--precision or a device with more memory",
             readings.sequence(row) + 1, readings.tokens(row));
      });
}

}  // namespace performer::infer
