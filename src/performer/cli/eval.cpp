#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "performer/cli/commands.h"
#include "performer/cli/device.h"
#include "performer/core/log.h"
#include "performer/data/batch_stream.h"
#include "performer/data/statistics.h"
#include "performer/train/evaluate.h"
#include "performer/train/load_model.h"
#include "performer/train/precision.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string checkpoint, data, device = "auto", precision = "fp32";
  std::vector<std::string> splits;
  std::int64_t batch = 0, max_batches = 0;
  bool json = false, baselines = false;
};

// The data of the recipe, or `file` in their place.
data::DataConfig data_of(const train::Recipe& recipe, const std::string& file, data::Split split) {
  auto config = recipe.data;
  if (file.empty()) return config;
  config.split_table.clear();
  switch (split) {
    case data::Split::kTrain:
      config.train = file;
      break;
    case data::Split::kValid:
      config.valid = file;
      break;
    case data::Split::kTest:
      config.test = file;
      break;
    case data::Split::kOod:
      config.ood = file;
      break;
  }
  return config;
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
Json baselines_of(const data::Dataset& train, const data::Dataset& held) {
  const auto as_json = [](const data::Baseline& b) {
    return Json{{"accuracy", b.accuracy}, {"perplexity", b.perplexity}};
  };
  const auto& space = held.space();
  const auto choices =
      space.num_classes() > 0 ? space.num_classes() : space.regular + (space.eos >= 0 ? 1 : 0);
  const auto seen = data::count_targets(train), asked = data::count_targets(held);
  return {{"uniform", as_json(data::uniform_baseline(choices))},
          {"empirical", as_json(data::empirical_baseline(seen, asked))}};
}

std::string table(const Json& splits) {
  auto text = fmt::format("{:<8}{:<12}{:>10}{:>12}{:>10}{:>10}{:>12}\n", "split", "", "accuracy",
                          "perplexity", "loss", "bits", "targets");
  for (const auto& [split, result] : splits.items()) {
    const double loss = result["loss"];
    text += fmt::format("{:<8}{:<12}{:>8.2f} %{:>12.3f}{:>10.4f}{:>10.4f}{:>12}\n", split, "model",
                        100 * result["accuracy"].get<double>(), result["perplexity"].get<double>(),
                        loss, loss / std::numbers::ln2, result["targets"].get<std::int64_t>());
    if (result.contains("word_perplexity")) {
      text += fmt::format("{:<8}{:<12}{:>10}{:>12.3f}   ({:.4f} tokens a word)\n", "", "words", "",
                          result["word_perplexity"].get<double>(),
                          result["word_multiplier"].get<double>());
    }
    const auto baselines = result.value("baselines", Json::object());
    for (const auto& [name, baseline] : baselines.items()) {
      text += fmt::format("{:<8}{:<12}{:>8.2f} %{:>12.3f}\n", "", name,
                          100 * baseline["accuracy"].get<double>(),
                          baseline["perplexity"].get<double>());
    }
  }
  return text;
}

void run(const Options& o) {
  if (o.batch < 0) fail(ExitCode::kUsage, "--batch: must be at least 1, got {}", o.batch);
  const auto device = parse_device(o.device);
  auto loaded = train::load_model(o.checkpoint, device, train::parse_precision(o.precision));
  Json all = {{"checkpoint", loaded.folder}, {"step", loaded.step}, {"splits", Json::object()}};
  for (const auto& name : o.splits) {
    const auto split = data::split_of(name);
    const auto config = data_of(loaded.recipe, o.data, split);
    const data::BatchStream rows(data::open_dataset(config, split, loaded.space),
                                 data::Use::kEvaluation);
    train::EvaluationOptions options;
    options.batch = o.batch > 0 ? o.batch : loaded.recipe.train.batch;
    options.max_batches = o.max_batches;
    options.device = device;
    options.progress = [&](std::int64_t done, std::int64_t whole) {
      log_progress(fmt::format("{}: batch {}/{}", name, done, whole));
    };
    const auto result = train::evaluate(loaded.model, rows, options);
    all["splits"][name] = result_of(result, loaded.recipe, rows.dataset().word_multiplier());
    if (o.baselines) {
      const auto train = data::open_dataset(loaded.recipe.data, data::Split::kTrain, loaded.space);
      all["splits"][name]["baselines"] = baselines_of(*train, rows.dataset());
    }
  }
  if (o.json) {
    fmt::print("{}\n", all.dump());
    return;
  }
  log_progress("");
  fmt::print("{} (step {})\n{}", loaded.folder, loaded.step, table(all["splits"]));
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("eval", "Accuracy, perplexity, bits per dimension of a model");
  command->add_option("checkpoint", options->checkpoint, "Run folder or checkpoint folder")
      ->required();
  command->add_option("--data", options->data, "File to evaluate on (default: that of the recipe)");
  command->add_option("--split", options->splits,
                      "train, valid, test or ood; may be repeated (default: test)");
  command->add_option("--batch", options->batch, "Rows at once (default: as in training)");
  command->add_option("--max-batches", options->max_batches,
                      "Stop after so many; 0: the whole split");
  command->add_option("--precision", options->precision, "fp32, bf16 or fp16")
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu, cuda, cuda:1 or auto")
      ->capture_default_str();
  command->add_flag("--baselines", options->baselines,
                    "Also guesses without a model: uniform, and the frequencies of training");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Examples:\n  performer eval runs/protein --split test --split ood\n"
      "  performer eval runs/protein --data other.fasta.gz --json");
  command->callback([options] {
    if (options->splits.empty()) options->splits = {"test"};
    run(*options);
  });
}

}  // namespace performer::cli
