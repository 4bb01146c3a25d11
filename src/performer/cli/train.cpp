#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "performer/cli/commands.h"
#include "performer/cli/device.h"
#include "performer/core/file.h"
#include "performer/core/log.h"
#include "performer/report/loss_curve.h"
#include "performer/train/dry_run.h"
#include "performer/train/profile.h"
#include "performer/train/recipe.h"
#include "performer/train/trainer.h"

namespace performer::cli {
namespace {

struct Options {
  std::string recipe, out, device = "auto";
  std::vector<std::string> assignments;
  bool restart = false, dry_run = false, dump_config = false, profile = false, json = false;
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
  const auto metrics = out / "metrics.jsonl";
  const report::LossCurve curve{title, report::read_points(metrics, "loss"),
                                report::read_points(metrics, "valid_loss")};
  try {
    write_file_atomic(out / "loss.svg", report::loss_curve_svg(curve));
  } catch (const Error& error) {
    log_warning("{}", error.what());  // a picture is not worth the run
  }
}

ExitCode run(const Options& o) {
  const auto recipe = train::read_recipe(o.recipe, o.assignments);
  if (o.dump_config) {
    fmt::print("{}", train::recipe_to_toml(recipe));
    return ExitCode::kOk;
  }
  const auto device = parse_device(o.device);
  if (o.dry_run) {
    const auto plan = train::dry_run(recipe);
    fmt::print("{}", o.json ? plan.to_json() : plan.to_text());
    return ExitCode::kOk;
  }
  const std::filesystem::path out =
      o.out.empty() ? std::filesystem::path("runs") / std::filesystem::path(o.recipe).stem()
                    : std::filesystem::path(o.out);
  if (o.overfit < 0) fail(ExitCode::kUsage, "--overfit: must be 0 or more, got {}", o.overfit);
  const train::TrainerOptions options{out, device, o.overfit, o.restart};
  train::Trainer trainer(recipe, options);
  std::unique_ptr<train::Profile> profile;
  if (o.profile) profile = std::make_unique<train::Profile>();
  const auto outcome = trainer.run();
  draw_loss_curve(out, recipe.description);
  if (profile) log_info("{}", profile->table());
  log_info("{}: step {}; checkpoints in {}, loss curve {}", words(outcome), trainer.progress().step,
           (out / "checkpoints").string(), (out / "loss.svg").string());
  if (o.json) {
    const auto& p = trainer.progress();
    fmt::print("{}\n", nlohmann::ordered_json{{"outcome", words(outcome)},
                                              {"step", p.step},
                                              {"best_step", p.best_step},
                                              {"best_valid_loss", p.best_loss},
                                              {"run", out.string()}}
                           .dump());
  }
  return outcome == train::Outcome::kPreempted ? ExitCode::kPreempted : ExitCode::kOk;
}

}  // namespace

void add_train(CLI::App& app, ExitCode& exit_code) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("train", "Train a model; the same command resumes");
  command->add_option("recipe", options->recipe, "Recipe, as in configs/")->required();
  command->add_option("--set", options->assignments, "Override a key: --set model.layers=6")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  command->add_option("--out", options->out, "Folder of the run (default: runs/RECIPE)");
  command->add_option("--device", options->device, "cpu, cuda, cuda:1 or auto")
      ->capture_default_str();
  command->add_flag("--restart", options->restart, "Forget the run in that folder and begin anew");
  command->add_flag("--dry-run", options->dry_run,
                    "Parameters, memory, break-even length; no training");
  command->add_flag("--dump-config", options->dump_config,
                    "Print the whole recipe, with help, and end");
  command->add_flag("--profile", options->profile, "Print where the time went");
  command->add_option("--overfit", options->overfit,
                      "Learn the first N batches by heart, as a check");
  command->add_flag("--json", options->json, "Print one JSON object to standard output");
  command->footer(
      "Examples:\n"
      "  performer train configs/protein/softmax.toml --out runs/first\n"
      "  performer train configs/protein/relu.toml --set model.attention.kind=exact --dry-run");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace performer::cli
