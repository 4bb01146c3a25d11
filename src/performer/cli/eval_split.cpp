#include <fmt/format.h>

#include <algorithm>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <limits>
#include <memory>

#include "performer/cli/eval.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/data/batch_stream.h"
#include "performer/data/statistics.h"
#include "performer/data/windows.h"
#include "performer/models/length_limit.h"
#include "performer/train/evaluate.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;
using DatasetPtr = std::shared_ptr<const data::Dataset>;

// The data of the recipe, or --data in their place, in rows of --length.
data::DataConfig data_of(const EvalOptions& o, const train::Recipe& recipe, data::Split split) {
  auto config = recipe.data;
  if (o.length > 0) {
    const auto limit = models::length_limit(recipe.model);
    if (limit > 0 && o.length > limit) {
      fail(ExitCode::kUsage,
           "--length: the model has learned positions for {} tokens, got {}; --overlap scores "
           "longer sequences in windows",
           limit, o.length);
    }
    config.length = o.length;
  }
  if (o.data.empty()) return config;
  config.split_table.clear();
  switch (split) {
    case data::Split::kTrain:
      config.train = o.data;
      break;
    case data::Split::kValid:
      config.valid = o.data;
      break;
    case data::Split::kTest:
      config.test = o.data;
      break;
    case data::Split::kOod:
      config.ood = o.data;
      break;
  }
  return config;
}

// The rows of a split, cut off or in windows.
struct Rows {
  DatasetPtr samples;                                  // as in training
  std::shared_ptr<const data::WindowDataset> windows;  // with --overlap alone

  DatasetPtr scored() const { return windows ? DatasetPtr(windows) : samples; }
  std::int64_t sequence_of(std::int64_t row) const {
    return windows ? windows->sequence_of(row) : row;
  }
};

Rows open_rows(const EvalOptions& o, const train::LoadedModel& loaded, data::Split split) {
  const auto ids = o.per_sequence.empty() ? data::Ids::kDrop : data::Ids::kKeep;
  Rows rows;
  rows.samples = data::open_dataset(data_of(o, loaded.recipe, split), split, loaded.space, ids);
  if (o.overlap >= 0) {
    rows.windows = std::make_shared<data::WindowDataset>(rows.samples, o.overlap);
  }
  return rows;
}

// Where the rows stand in the sequences: what was scored, and what was not.
void add_coverage(const EvalOptions& o, const Rows& rows, std::int64_t batch, Json& result) {
  const auto& samples = *rows.samples;
  result["length"] = samples.length();
  result["overlap"] = rows.windows ? Json(o.overlap) : Json();
  const auto asked = o.max_batches > 0 && !rows.windows ? o.max_batches * batch
                                                        : std::numeric_limits<std::int64_t>::max();
  const auto c = data::coverage(samples, asked);
  if (c.sequences == 0) return;
  result["sequences"] = c.sequences;
  result["residues"] = c.residues;
  result["sequences_cut"] = rows.windows ? 0 : c.cut;
  result["residues_left_out"] = rows.windows ? 0 : c.left_out;
}

Json result_of(const train::Evaluation& e, const train::Recipe& recipe, double word_multiplier) {
  Json result = {{"loss", e.loss()},
                 {"accuracy", e.accuracy()},
                 {"perplexity", e.perplexity()},
                 {"samples", e.samples},
                 {"targets", e.targets},
                 {"seconds", e.seconds},
                 {"tokens_per_second", static_cast<double>(e.tokens) / e.seconds}};
  if (recipe.data.task == "pixels") result["bits_per_dimension"] = e.bits();
  if (word_multiplier > 0) {
    result["word_multiplier"] = word_multiplier;
    result["word_perplexity"] = std::exp(word_multiplier * e.loss());
  }
  return result;
}

// What guesses without a model reach on the same targets.
Json baselines(const train::LoadedModel& loaded, const data::Dataset& held) {
  const auto as_json = [](const data::Baseline& b) {
    return Json{{"accuracy", b.accuracy}, {"perplexity", b.perplexity}};
  };
  const auto train = data::open_dataset(loaded.recipe.data, data::Split::kTrain, loaded.space);
  const auto seen = data::count_targets(*train), asked = data::count_targets(held);
  const auto apart = data::baselines_of(loaded.space, data::Ends::kApart, seen, asked);
  const auto counted = data::baselines_of(loaded.space, data::Ends::kCounted, seen, asked);
  Json json = {{"uniform", as_json(apart.uniform)}, {"empirical", as_json(apart.empirical)}};
  if (counted.choices != apart.choices) {
    json["with_eos"] = {{"uniform", as_json(counted.uniform)},
                        {"empirical", as_json(counted.empirical)}};
  }
  return json;
}

}  // namespace

Json evaluate_split(const EvalOptions& o, train::LoadedModel& loaded, const std::string& name,
                    SequenceTable* table) {
  const auto rows = open_rows(o, loaded, data::split_of(name));
  const data::BatchStream stream(rows.scored(), data::Use::kEvaluation);
  train::EvaluationOptions options;
  options.batch = o.batch > 0 ? o.batch : loaded.recipe.train.batch;
  options.max_batches = o.max_batches;
  options.device = loaded.model->parameters().front().device();
  options.progress = [&](std::int64_t done, std::int64_t whole) {
    log_progress(fmt::format("{}: batch {}/{}", name, done, whole));
  };
  if (table != nullptr) {
    table->begin(name, *rows.samples);
    options.on_row = [&](std::int64_t row, const train::RowScore& score) {
      table->add(rows.sequence_of(row), score);
    };
  }
  const auto evaluation = train::evaluate(loaded.model, stream, options);
  log_progress("");
  if (evaluation.targets == 0) {
    fail(ExitCode::kBadInput, "{}: its rows have no target to be scored", name);
  }
  if (table != nullptr) table->end();
  auto result = result_of(evaluation, loaded.recipe, rows.samples->word_multiplier());
  add_coverage(o, rows, options.batch, result);
  if (o.baselines) result["baselines"] = baselines(loaded, stream.dataset());
  return result;
}

}  // namespace performer::cli
