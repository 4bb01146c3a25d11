#include "performer/train/recipe.h"

#include <nlohmann/json.hpp>

#include "performer/core/config.h"
#include "performer/core/error.h"

namespace performer::train {
namespace {

void require(bool ok, std::string_view key, std::string_view rule, auto value) {
  if (!ok) fail(ExitCode::kUsage, "{}: must be {}, got {}", key, rule, value);
}

void check_train(const Recipe& r) {
  require(r.train.steps >= 1, "train.steps", "at least 1", r.train.steps);
  require(r.train.batch >= 1, "train.batch", "at least 1", r.train.batch);
  require(r.train.step_tokens >= 0, "train.step_tokens", "0 or more", r.train.step_tokens);
  require(r.train.log_every >= 1, "train.log_every", "at least 1", r.train.log_every);
  require(r.train.valid_every >= 0, "train.valid_every", "0 or more", r.train.valid_every);
  require(r.train.keep_last >= 1, "train.keep_last", "at least 1", r.train.keep_last);
  require(r.train.workers >= 1 && r.train.workers <= 64, "train.workers", "1 to 64",
          r.train.workers);
  require(r.optimizer.rate > 0, "optimizer.rate", "above 0", r.optimizer.rate);
  require(r.optimizer.beta1 >= 0 && r.optimizer.beta1 < 1, "optimizer.beta1", "in [0, 1)",
          r.optimizer.beta1);
  require(r.optimizer.beta2 >= 0 && r.optimizer.beta2 < 1, "optimizer.beta2", "in [0, 1)",
          r.optimizer.beta2);
  require(r.optimizer.eps > 0, "optimizer.eps", "above 0", r.optimizer.eps);
  require(r.optimizer.clip >= 0, "optimizer.clip", "0 or more", r.optimizer.clip);
  require(r.schedule.warmup >= 0, "schedule.warmup", "0 or more", r.schedule.warmup);
  require(r.guard.spike_factor > 1, "guard.spike_factor", "above 1", r.guard.spike_factor);
  require(r.guard.spike_window >= 1, "guard.spike_window", "at least 1", r.guard.spike_window);
  require(r.guard.max_skipped >= 1, "guard.max_skipped", "at least 1", r.guard.max_skipped);
}

}  // namespace

void check(const Recipe& recipe) {
  check_train(recipe);
  data::check(recipe.data);
  auto model = recipe.model;  // what the data will decide may still be open
  if (model.vocabulary == 0) model.vocabulary = 1;
  if (model.classes == 0) model.classes = 2;
  models::check(model);
  const auto& d = recipe.data;
  const bool labelled = d.task == "classify" || d.task == "match";
  require(recipe.model.head == (labelled ? d.task : "lm"), "model.head",
          fmt::format("\"{}\" for data.task = \"{}\"", labelled ? d.task : "lm", d.task),
          recipe.model.head);
  if (!labelled) {
    require(recipe.model.causal == (d.objective == "causal"), "model.causal",
            fmt::format("{} for data.objective = \"{}\"", d.objective == "causal", d.objective),
            recipe.model.causal);
  }
}

Recipe read_recipe(const std::string& path, const std::vector<std::string>& assignments) {
  Recipe recipe;
  auto tree = ConfigTree::from_toml_file(path);
  for (const auto& assignment : assignments) tree.set(assignment);
  tree.read_into(list_fields(recipe));
  // The model is as long as its rows unless the recipe says otherwise.
  if (!tree.contains("model.max_length")) recipe.model.max_length = recipe.data.length;
  check(recipe);
  return recipe;
}

Recipe recipe_from_json(const std::string& text, const std::string& source) {
  Recipe recipe;
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(ExitCode::kCorrupt, "{}: is no JSON object", source);
  ConfigTree::from_json(json, source).read_into(list_fields(recipe));
  return recipe;
}

std::string recipe_to_json(const Recipe& recipe) {
  auto copy = recipe;
  return fields_to_json(list_fields(copy)).dump(2) + "\n";
}

std::string recipe_to_toml(const Recipe& recipe) {
  auto copy = recipe;
  return fields_to_toml(list_fields(copy));
}

}  // namespace performer::train
