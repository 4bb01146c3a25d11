#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/cli/data_table.h"
#include "performer/cli/inspect_model.h"
#include "performer/cli/inspect_rows.h"
#include "performer/cli/model_options.h"
#include "performer/cli/quality_report.h"
#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/log.h"
#include "performer/infer/twin.h"
#include "performer/report/table.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  ModelOptions model;
  RowOptions rows;
  std::string output;
  std::vector<std::int64_t> features = {64, 128, 256};
  bool overwrite = false, json = false;
};

struct Inspection {
  ModelFacts facts;
  std::vector<std::string> kernels;  // of each layer
  AttentionReport attention;         // empty: not measured
};

// Whether all layers are of this kind.
bool all_layers(const models::ModelConfig& c, const std::string& kind) {
  for (std::int64_t i = 0; i < c.layers; ++i) {
    if (c.kind_of(i) != kind) return false;
  }
  return true;
}

// Exact models: what features would do to them. Performers: how far they are from exact attention.
std::vector<Growth> growth_of(const InspectOptions& o, infer::LoadedModel& loaded,
                              const std::vector<at::Tensor>& rows) {
  const auto& c = loaded.recipe.model;
  std::vector<Growth> all;
  if (all_layers(c, "exact")) {
    for (const auto m : o.features) {
      auto twin = infer::twin_of(loaded.model, infer::favor_recipe(loaded.recipe, m));
      all.push_back(
          {fmt::format("{} random features", m), infer::error_growth(loaded.model, twin, rows)});
    }
  }
  static const std::set<std::string> kSoftmax = {"positive", "loglinear", "hyperbolic",
                                                 "trigonometric"};
  bool features = kSoftmax.contains(c.attention.kernel);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    features = features && (c.kind_of(i) == "favor" || c.kind_of(i) == "exact");
  }
  if (features && !all_layers(c, "exact")) {
    auto twin = infer::twin_of(loaded.model, infer::exact_recipe(loaded.recipe));
    all.push_back({"the model's own features", infer::error_growth(twin, loaded.model, rows)});
  }
  return all;
}

Inspection inspect(const InspectOptions& o, infer::LoadedModel& loaded) {
  Inspection found;
  found.facts = facts_of(loaded);
  if (loaded.recipe.model.reversible) {
    log_info("heads and kernels: not measured, layers of a reversible model have two streams");
    return found;
  }
  const auto device = loaded.model->parameters().front().device();
  const auto rows = open_rows(o.rows, loaded, device);
  found.kernels = kernels_of(
      loaded.model, rows.rows.empty() ? at::zeros({8}, at::kLong).to(device) : rows.rows.front());
  if (rows.rows.empty()) {
    log_info("heads: not measured: {}", rows.about);
    return found;
  }
  found.attention.rows = rows.about;
  found.attention.heads = infer::attention_quality(loaded.model, {rows.rows, o.features});
  if (!found.attention.heads.empty()) {
    found.attention.growth = growth_of(o, loaded, rows.rows);
  }
  return found;
}

std::string kernel_text(const std::vector<std::string>& kernels) {
  return fmt::format("{}", fmt::join(std::set<std::string>(kernels.begin(), kernels.end()), ", "));
}

void print_inspection(const infer::LoadedModel& loaded, const Inspection& found) {
  fmt::print("{}\n", loaded.choice);
  for (const auto& [name, words] : found.facts.lines) fmt::print("{:<14}{}\n", name, words);
  if (!found.kernels.empty()) fmt::print("{:<14}{}\n", "kernels", kernel_text(found.kernels));
  if (found.attention.heads.empty()) return;
  fmt::print("{:<14}{}\n{}", "rows", found.attention.rows, to_text(found.attention));
}

void write_page(const InspectOptions& o, const infer::LoadedModel& loaded,
                const Inspection& found) {
  const auto& c = loaded.recipe.model;
  std::int64_t parameters = 0;
  for (const auto& [name, count] : found.facts.parts) {
    if (name != "fitted features") parameters += count;
  }
  report::Page page("Model: " + o.model.path, loaded.choice);
  page.add(report::key_figures({{"parameters", report::count_text(parameters)},
                                {"layers", std::to_string(c.layers)},
                                {"heads", fmt::format("{} of {}", c.heads, c.head_dim())},
                                {"attention", c.attention.kind}}));
  page.section("Model");
  report::Table table{"What it is and takes", {}, {}};
  for (const auto& [name, words] : found.facts.lines) table.rows.push_back({name, words});
  if (!found.kernels.empty()) table.rows.push_back({"kernels", kernel_text(found.kernels)});
  page.add(draw(table));
  add_sections(page, found.attention);
  write_file_atomic(o.output, page.html());
}

void run_inspect(const InspectOptions& o) {
  if (!o.output.empty() && !o.overwrite && is_there(o.output)) {
    fail(ExitCode::kUsage, "{}: already exists; name another file, or pass --overwrite", o.output);
  }
  auto loaded = load(o.model);
  const Inspection found = inspect(o, loaded);
  if (!o.output.empty()) write_page(o, loaded, found);
  if (o.json) {
    Json json = json_of(loaded);
    json["kernels"] = found.kernels;
    json["quality"] = found.attention.heads.empty() ? Json() : to_json(found.attention);
    fmt::print("{}", json_line(json));
    return;
  }
  print_inspection(loaded, found);
  if (!o.output.empty()) fmt::print("page          {}\n", o.output);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  auto& o = *options;
  auto* command = app.add_subcommand(
      "inspect", "What a model is and takes, and how well features serve each of its heads");
  add_model_options(*command, o.model);
  command
      ->add_option("--data", o.rows.path,
                   "Sequences to measure the heads on: FASTA, or a text a line; gzip, - for "
                   "standard input (default: the run's validation data)")
      ->type_name("FILE");
  bounded(command->add_option("--rows", o.rows.count, "Sequences that are taken, evenly spread"), 1,
          kMostRows)
      ->capture_default_str();
  bounded(command->add_option("--length", o.rows.length, "Tokens of each, at most"), 2, kMostTokens)
      ->capture_default_str();
  bounded(command->add_option("--features", o.features,
                              "Numbers of random features to try beside the model's own"),
          1, models::kMaxFeatures)
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-o,--output", o.output, "Write a page of it, too: one HTML file")
      ->type_name("FILE");
  command->add_flag("--overwrite", o.overwrite, "Replace a page that already exists");
  add_placement_options(*command, o.model);
  command->add_flag("--json", o.json, "Print one JSON object");
  command->footer(
      "Errors are relative to exact attention on the same queries, keys and values. For exact\n"
      "models they say what FAVOR+ would cost, before anything is converted or trained.\n"
      "Examples:\n  performer inspect runs/protein\n"
      "  performer inspect runs/protein --data in.fasta -o protein.html\n"
      "  performer inspect minilm --data articles.txt --features 64,128,512 --json");
  command->callback([options] { run_inspect(*options); });
}

}  // namespace performer::cli
