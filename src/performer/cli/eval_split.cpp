#include <fmt/format.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <vector>

#include "performer/cli/data_table.h"
#include "performer/cli/eval.h"
#include "performer/cli/eval_rows.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/data/batch_stream.h"
#include "performer/data/open_sequences.h"
#include "performer/data/split_sources.h"
#include "performer/data/statistics.h"
#include "performer/data/whole_dataset.h"
#include "performer/data/whole_sequences.h"
#include "performer/infer/evaluate.h"
#include "performer/models/length_limit.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

// The data of the recipe, or --data in their place, in rows of --length.
data::DataConfig data_of(const EvalOptions& o, const run::Recipe& recipe) {
  auto config = recipe.data;
  if (o.length > 0) {
    const auto limit = models::length_limit(recipe.model);
    if (limit > 0 && o.length > limit) {
      const bool learned = recipe.model.positions == "learned";
      fail(ExitCode::kUsage,
           "--length: the model has {} for {} tokens, got {}; --overlap scores longer sequences in "
           "windows",
           learned ? "learned positions" : "Linformer projections", limit, o.length);
    }
    config.length = o.length;
  }
  if (o.data.empty()) return config;
  config.split_table.clear();
  config.test = o.data;
  return config;
}

// An imported encoder was made for texts between [CLS] and [SEP], not for blocks of a stream: each
// line of a text, or record of a FASTA file, is a row.
bool reads_lines(const EvalOptions& o, const infer::LoadedModel& loaded) {
  return !o.data.empty() && loaded.space.kind == "hf" && !loaded.recipe.model.causal;
}

std::unique_ptr<data::Dataset> open_lines(const EvalOptions& o, const infer::LoadedModel& loaded) {
  if (loaded.space.mask < 0) {
    fail(ExitCode::kUsage,
         "{}: its tokenizer names no mask, which stands for what is to be predicted; give "
         "tokenizer_config.json of its folder a mask_token, and convert it again",
         loaded.folder);
  }
  return std::make_unique<data::WholeDataset>(data_of(o, loaded.recipe), loaded.space,
                                              data::open_sequences(o.data, loaded.space));
}

EvalRows open_rows(const EvalOptions& o, const infer::LoadedModel& loaded,
                   const std::string& name) {
  const auto split = o.data.empty() ? data::split_of(name) : data::Split::kTest;
  const auto ids = o.per_sequence.empty() ? data::Ids::kDrop : data::Ids::kKeep;
  EvalRows rows;
  rows.samples = reads_lines(o, loaded)
                     ? open_lines(o, loaded)
                     : data::open_dataset(data_of(o, loaded.recipe), split, loaded.space, ids);
  if (o.overlap >= 0) {
    rows.windows = std::make_shared<data::WindowDataset>(rows.samples, o.overlap);
    rows.overlap = o.overlap;
  }
  return rows;
}

// Where the scored rows stand in the sequences: what was scored, and what was not.
void add_coverage(const EvalRows& rows, std::int64_t scored, Json& result) {
  result["length"] = rows.samples->length();
  result["overlap"] = rows.windows ? Json(rows.overlap) : Json();
  const auto c = rows.coverage(scored);
  if (c.sequences == 0) return;
  result["sequences"] = c.sequences;
  result["sequences_of_split"] = rows.samples->whole()->count();
  result["residues"] = c.residues;
  result["sequences_cut"] = c.cut;
  result["residues_left_out"] = c.left_out;
}

Json result_of(const infer::Evaluation& e, const run::Recipe& recipe, double word_multiplier) {
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

// What guesses without a model reach on the same targets: those of the rows that were scored.
Json baselines(const infer::LoadedModel& loaded, const data::Dataset& held, std::int64_t scored) {
  const auto train = data::open_dataset(loaded.recipe.data, data::Split::kTrain, loaded.space);
  const auto seen = data::count_targets(*train), asked = data::count_first_targets(held, scored);
  const auto apart = data::baselines_of(loaded.space, data::Ends::kApart, seen, asked);
  const auto counted = data::baselines_of(loaded.space, data::Ends::kCounted, seen, asked);
  Json json = {{"uniform", to_json(apart.uniform)}, {"empirical", to_json(apart.empirical)}};
  if (counted.choices != apart.choices) {
    json["with_eos"] = {{"uniform", to_json(counted.uniform)},
                        {"empirical", to_json(counted.empirical)}};
  }
  return json;
}

// Weights may be finite and what they give may not.
void check_finite(const infer::Evaluation& evaluation, const EvalOptions& o,
                  const infer::LoadedModel& loaded, const std::string& split) {
  if (std::isfinite(evaluation.loss())) return;
  const bool narrow = o.model.precision != "fp32";
  fail(ExitCode::kDiverged, "{}: its loss on {} is {} in {}; {}", loaded.folder, split,
       std::abs(evaluation.loss()), o.model.precision,
       narrow ? "the numbers may be beyond those of the precision: take --precision fp32"
              : "its weights have diverged: take an earlier one by --checkpoint");
}

// Marked rows are there or not as their file says, which is better read once.
bool may_have(const data::DataConfig& config, data::Split split) {
  const auto place = data::place_of(config, split);
  return config.task == "recall" || place.marked || !place.paths.empty();
}

}  // namespace

void require_split(const infer::LoadedModel& loaded, const std::string& name) {
  const auto& config = loaded.recipe.data;
  if (may_have(config, data::split_of(name))) return;
  std::vector<std::string> there;
  for (const auto* other : {"train", "valid", "test", "ood"}) {
    if (may_have(config, data::split_of(other))) there.emplace_back(other);
  }
  fail(ExitCode::kUsage,
       "{}: this run has no {} split; take --split {}, or name a file with --data", loaded.folder,
       name, fmt::join(there, " or "));
}

Json evaluate_split(const EvalOptions& o, infer::LoadedModel& loaded, const std::string& name,
                    SequenceTable* table) {
  const auto rows = open_rows(o, loaded, name);
  const data::BatchStream stream(rows.scored(), data::Use::kEvaluation);
  infer::EvaluationOptions options;
  options.batch = o.batch > 0 ? o.batch : loaded.recipe.train.batch;
  options.max_batches = o.max_batches;
  options.device = loaded.model->parameters().front().device();
  options.progress = [&](std::int64_t done, std::int64_t whole) {
    log_progress(fmt::format("{}: batch {}/{}", name, done, whole));
  };
  if (table != nullptr) {
    table->begin(name, rows);
    options.on_row = [&](std::int64_t row, const infer::RowScore& score) {
      table->add(row, score);
    };
  }
  const auto evaluation = infer::evaluate(loaded.model, stream, options);
  log_progress("");
  if (evaluation.targets == 0) {
    fail(ExitCode::kBadInput, "{}: its rows have no target to be scored", name);
  }
  check_finite(evaluation, o, loaded, name);
  if (table != nullptr) table->end(evaluation.samples);
  auto result = result_of(evaluation, loaded.recipe, rows.samples->word_multiplier());
  result["samples_of_split"] = stream.size();
  add_coverage(rows, evaluation.samples, result);
  if (o.baselines) result["baselines"] = baselines(loaded, stream.dataset(), evaluation.samples);
  return result;
}

}  // namespace performer::cli
