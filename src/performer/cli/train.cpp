#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "performer/cli/bounds.h"
#include "performer/cli/commands.h"
#include "performer/cli/compute.h"
#include "performer/core/config.h"
#include "performer/core/file.h"
#include "performer/core/log.h"
#include "performer/data/recipe_paths.h"
#include "performer/report/loss_curve.h"
#include "performer/run/recipe.h"
#include "performer/run/same_run.h"
#include "performer/train/dry_run.h"
#include "performer/train/profile.h"
#include "performer/train/trainer.h"

namespace performer::cli {
namespace {

struct TrainOptions {
  std::string recipe, out, init;
  ComputeOptions compute;
  std::vector<std::string> assignments, changes;
  bool restart = false, new_data = false, dry_run = false, dump_config = false, profile = false,
       json = false;
  std::int64_t overfit = 0;
};

std::string_view words(train::Outcome outcome) {
  switch (outcome) {
    case train::Outcome::kFinished:
      return "finished";
    case train::Outcome::kAlreadyFinished:
      return "finished before; nothing to do";
    case train::Outcome::kEarlyStop:
      return "stopped early: validation no longer improves";
    case train::Outcome::kTimeLimit:
      return "stopped at the time limit train.seconds; the same command goes on";
    case train::Outcome::kPreempted:
      return "stopped by a signal and saved; the same command goes on";
  }
  return "";
}

void draw_loss_curve(const std::filesystem::path& out, const std::string& title) {
  const auto curve = report::read_loss_curve(out / "metrics.jsonl", title);
  try {
    write_file_atomic(out / "loss.svg", report::loss_curve_svg(curve));
  } catch (const Error& error) {
    log_warning("{}", error.what());  // a picture is not worth the run
  }
}

std::set<std::string> keys_of(const std::vector<std::string>& assignments) {
  std::set<std::string> keys;
  run::Recipe recipe;
  for (const auto& assignment : assignments) {
    auto key = own_name(list_fields(recipe), assignment.substr(0, assignment.find('=')));
    run::check_changeable(key);
    keys.insert(std::move(key));
  }
  return keys;
}

std::string summary(const run::Progress& progress, std::string_view outcome,
                    const std::filesystem::path& out) {
  using Json = nlohmann::ordered_json;
  const bool validated = progress.best_step > 0;
  const Json json = {{"outcome", outcome},
                     {"step", progress.step},
                     {"best_step", validated ? Json(progress.best_step) : Json()},
                     {"best_valid_loss", validated ? Json(progress.best_loss) : Json()},
                     {"run", out.string()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);  // a path may be any bytes
}

ExitCode run_train(const TrainOptions& o) {
  const std::filesystem::path out =
      o.out.empty() ? std::filesystem::path("runs") / std::filesystem::path(o.recipe).stem()
                    : std::filesystem::path(o.out);
  const auto defaults = o.restart ? run::Recipe() : run::defaults_of_run(out);
  const auto recipe = run::read_recipe(o.recipe, o.assignments, o.changes, defaults);
  if (o.dump_config) {
    fmt::print("{}", run::recipe_to_toml(recipe));
    return ExitCode::kOk;
  }
  data::check_named_files(recipe.data, o.recipe, recipe.train.valid_every > 0);
  const auto device = prepare(o.compute);
  if (o.dry_run) {
    const auto plan = train::dry_run(recipe);
    fmt::print("{}", o.json ? plan.to_json() : plan.to_text());
    return ExitCode::kOk;
  }
  const train::TrainerOptions options{
      out, device, o.overfit, o.restart, o.new_data, keys_of(o.changes), o.recipe, o.init};
  train::Trainer trainer(recipe, options);
  std::unique_ptr<train::Profile> profile;
  if (o.profile) profile = std::make_unique<train::Profile>();
  const auto outcome = trainer.run();
  draw_loss_curve(out, recipe.description);
  if (profile) log_info("{}", profile->table());
  log_info("{}: step {}; checkpoints in {}, loss curve {}", words(outcome), trainer.progress().step,
           (out / "checkpoints").string(), (out / "loss.svg").string());
  if (o.json) {
    fmt::print("{}\n", summary(trainer.progress(), words(outcome), out));
  }
  return outcome == train::Outcome::kPreempted ? ExitCode::kPreempted : ExitCode::kOk;
}

}  // namespace

void add_train(CLI::App& app, ExitCode& exit_code) {
  auto options = std::make_shared<TrainOptions>();
  auto* command = app.add_subcommand("train", "Train a model; the same command resumes");
  command->add_option("recipe", options->recipe, "Recipe, as in configs/")->required();
  command->add_option("--set", options->assignments, "Override a key: --set model.layers=6")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--change", options->changes,
                   "As --set, and a run in the folder goes on with the new value: rates, batches, "
                   "schedule, guards")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--init", options->init,
                   "Begin with the weights of another run, or of a converted model; its attention, "
                   "dropout and head may be others")
      ->type_name("RUN");
  command->add_option("--out", options->out, "Folder of the run (default: runs/RECIPE)");
  add_compute_options(*command, options->compute);
  command->add_flag("--restart", options->restart, "Forget the run in that folder and begin anew");
  command->add_flag("--new-data", options->new_data,
                    "Go on with a run though its data have changed");
  command->add_flag("--dry-run", options->dry_run,
                    "Parameters, memory, break-even length; no training");
  command->add_flag("--dump-config", options->dump_config,
                    "Print the whole recipe, with help, and end");
  command->add_flag("--profile", options->profile, "Print where the time went");
  bounded(command->add_option("--overfit", options->overfit,
                              "Memorise the first N batches, as a check"),
          0, kMostRows);
  command->add_flag("--json", options->json, "Print one JSON object to standard output");
  command->footer(
      "Examples:\n"
      "  performer train configs/protein/softmax.toml --out runs/first\n"
      "  performer train configs/protein/relu.toml --set model.attention.kind=exact --dry-run\n"
      "  performer train tuned.toml --init runs/exact --set model.attention.kind=favor");
  command->callback([options, &exit_code] { exit_code = run_train(*options); });
}

}  // namespace performer::cli
