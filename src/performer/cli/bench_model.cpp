#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "performer/cli/bench.h"
#include "performer/cli/bounds.h"
#include "performer/cli/compute.h"
#include "performer/core/error.h"
#include "performer/core/log.h"
#include "performer/train/profile.h"
#include "performer/train/step_bench.h"

namespace performer::cli {
namespace {

struct BenchModelOptions {
  std::string recipe;
  ComputeOptions compute;
  std::vector<std::string> assignments;
  std::int64_t steps = 10;
  bool json = false, profile = false;
};

void run_bench_model(const BenchModelOptions& o) {
  const auto recipe = run::read_recipe(o.recipe, o.assignments);
  if (recipe.model.vocabulary == 0) {
    fail(ExitCode::kUsage, "{}: model.vocabulary must be given, since no data are read", o.recipe);
  }
  std::unique_ptr<train::Profile> profile;
  if (o.profile) profile = std::make_unique<train::Profile>();
  const auto result = train::bench_step(recipe, prepare(o.compute), o.steps);
  if (profile) log_info("{}", profile->table());
  const auto& kind = recipe.model.attention.kind;
  if (o.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"kind", kind},
                                              {"length", recipe.data.length},
                                              {"rows", recipe.train.batch},
                                              {"step_ms", result.step_ms},
                                              {"spread_ms", result.spread_ms},
                                              {"tokens_per_second", result.tokens_per_second},
                                              {"memory_mib", result.memory_mib},
                                              {"parameters", result.parameters}}
                           .dump());
    return;
  }
  fmt::print(
      "{} x {} tokens, {}: {:.1f} ms a step (quarters {:.1f} apart), {:.0f} tokens/s, {:.0f} MiB\n",
      recipe.train.batch, recipe.data.length, kind, result.step_ms, result.spread_ms,
      result.tokens_per_second, result.memory_mib);
}

}  // namespace

void add_bench_model(CLI::App& bench) {
  auto options = std::make_shared<BenchModelOptions>();
  auto* command =
      bench.add_subcommand("model", "Training steps of a recipe's model on random tokens");
  command->add_option("recipe", options->recipe, "Recipe, as in configs/bench")->required();
  command->add_option("--set", options->assignments, "Override a key: --set data.length=4096")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  bounded(command->add_option("--steps", options->steps, "Timed steps")->capture_default_str(), 1,
          1'000'000);
  add_compute_options(*command, options->compute);
  command->add_flag("--profile", options->profile, "Print where the time went");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example:\n  performer bench model configs/bench/regular.toml --set "
      "model.attention.kind=exact");
  command->callback([options] { run_bench_model(*options); });
}

}  // namespace performer::cli
