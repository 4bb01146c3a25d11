#include "performer/cli/eval.h"

#include <algorithm>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/data/data_config.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

// What the rows of --data are called in the results: they are of none of the run's splits.
std::string name_of_data(const std::string& path) {
  const std::filesystem::path file(path);
  return file.has_filename() ? file.filename().string() : file.parent_path().filename().string();
}

void run_eval(const EvalOptions& o) {
  std::optional<SequenceTable> table;
  if (!o.per_sequence.empty()) table.emplace(o.per_sequence, o.overwrite);
  auto loaded = load(o.model);
  if (o.json) log_info("{}", loaded.choice);
  if (o.data.empty()) {
    for (const auto& name : o.splits) require_split(loaded, name);
  }
  Json all = {{"checkpoint", loaded.folder}, {"step", loaded.step}};
  if (!o.model.attention.empty()) all["set"] = o.model.attention;
  all["splits"] = Json::object();
  for (const auto& name : o.splits) {
    all["splits"][name] = evaluate_split(o, loaded, name, table ? &*table : nullptr);
  }
  if (o.json) {
    fmt::print("{}\n", all.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}\n{}", loaded.choice, evaluation_text(all["splits"], units_of(loaded.space)));
  }
  std::fflush(stdout);  // results before what may still fail
  if (table) table->write();
}

// Each once, in the order given; a wrong name is better known before hours of scoring.
std::vector<std::string> splits_of(const EvalOptions& o) {
  if (!o.data.empty()) {
    if (o.splits.empty()) return {name_of_data(o.data)};
    fail(ExitCode::kUsage,
         "--split {}: --data {} is scored in place of the run's splits; leave one of the two out",
         o.splits.front(), o.data);
  }
  if (o.splits.empty()) return {"test"};
  std::vector<std::string> splits;
  for (const auto& name : o.splits) {
    data::split_of(name);
    if (std::ranges::find(splits, name) == splits.end()) splits.push_back(name);
  }
  return splits;
}

void add_row_options(CLI::App& command, EvalOptions& o) {
  bounded(command.add_option("--length", o.length,
                             "Tokens of a row (default: the recipe's); what is longer is cut off"),
          1, kMostTokens);
  bounded(command.add_option("--overlap", o.overlap,
                             "Score sequences whole, in windows of --length tokens: each begins "
                             "with N tokens of the one before, as context"),
          0, kMostTokens)
      ->type_name("N");
  bounded(command.add_option("--batch", o.batch, "Rows at once (default: as in training)"), 1,
          kMostRows);
  bounded(
      command.add_option("--max-batches", o.max_batches, "Stop after so many; 0: the whole split"),
      0, kMostSteps);
  command
      .add_option("--per-sequence", o.per_sequence,
                  "TSV file of the scores of single sequences, with their ids")
      ->type_name("FILE");
  command.add_flag("--overwrite", o.overwrite, "Replace a --per-sequence file that already exists");
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  auto& o = *options;
  auto* command = app.add_subcommand("eval", "Accuracy, perplexity, bits per dimension of a model");
  add_model_options(*command, o.model);
  command->add_option("--data", o.data,
                      "File to evaluate on, in place of the run's splits; its row has its name");
  command->add_option("--split", o.splits,
                      "train, valid, test or ood; may be repeated (default: test)");
  add_row_options(*command, o);
  add_placement_options(*command, o.model);
  command->add_flag("--baselines", o.baselines,
                    "Also guesses without a model: uniform, and the frequencies of training");
  command->add_flag("--json", o.json, "Print one JSON object");
  command->footer(
      "Examples:\n  performer eval runs/protein --split test --split ood --baselines\n"
      "  performer eval runs/protein --data other.fasta.gz --json\n"
      "  performer eval runs/exact --set model.attention.kind=favor --set model.attention.near=64\n"
      "  performer eval runs/protein --overlap 128 --per-sequence scores.tsv");
  command->callback([options] {
    options->splits = splits_of(*options);
    run_eval(*options);
  });
}

}  // namespace performer::cli
