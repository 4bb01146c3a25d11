#include "performer/run/recipe.h"

#include <nlohmann/json.hpp>

#include "performer/core/config.h"
#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/safe_text.h"
#include "performer/core/size.h"
#include "performer/data/recipe_paths.h"
#include "performer/run/checkpoint.h"
#include "performer/run/checkpoint_versions.h"
#include "performer/run/recipe_file.h"

namespace performer::run {
namespace {

void require(bool ok, std::string_view key, std::string_view rule, auto value) {
  if (!ok) fail(ExitCode::kUsage, "{}: must be {}, got {}", key, rule, value);
}

void check_train(const Recipe& r) {
  require(r.optimizer.rate > 0, "optimizer.rate", "above 0", r.optimizer.rate);
  require(r.optimizer.beta1 >= 0 && r.optimizer.beta1 < 1, "optimizer.beta1", "in [0, 1)",
          r.optimizer.beta1);
  require(r.optimizer.beta2 >= 0 && r.optimizer.beta2 < 1, "optimizer.beta2", "in [0, 1)",
          r.optimizer.beta2);
  require(r.optimizer.eps > 0, "optimizer.eps", "above 0", r.optimizer.eps);
  require(r.optimizer.clip >= 0, "optimizer.clip", "0 or more", r.optimizer.clip);
  require(r.optimizer.weight_decay >= 0, "optimizer.weight_decay", "0 or more",
          r.optimizer.weight_decay);
  require(r.schedule.final_ratio >= 0, "schedule.final_ratio", "0 or more", r.schedule.final_ratio);
  require(r.guard.spike_factor > 1, "guard.spike_factor", "above 1", r.guard.spike_factor);
  // Rows are as long as their longest; what they may be is what memory is asked for.
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 36;
  const Size tokens = Size(r.train.batch) * r.data.length;
  if (tokens.value() > kMostTokens) {
    fail(ExitCode::kUsage,
         "train.batch: {} rows of data.length = {} are {} tokens at once, at most {} are possible",
         r.train.batch, r.data.length, tokens.value(), kMostTokens);
  }
}

// The recipe becomes the config.json of checkpoints; better now than at the first of them.
void check_text(Recipe recipe) {
  const auto check = [](const Field& field, const std::string& text) {
    if (is_utf8(text)) return;
    fail(ExitCode::kUsage, "{}: must be UTF-8, got {}; rename the file", field.name, shown(text));
  };
  for (const auto& field : list_fields(recipe)) {
    if (const auto* text = std::get_if<std::string*>(&field.value)) check(field, **text);
    if (const auto* list = std::get_if<std::vector<std::string>*>(&field.value)) {
      for (const auto& text : **list) check(field, text);
    }
  }
  if (const auto bytes = std::ssize(recipe_to_json(recipe)); bytes > kMaxConfigBytes) {
    fail(ExitCode::kUsage,
         "recipe: takes {} bytes as the config.json of a checkpoint, at most {} are possible; name "
         "many files by folders or patterns, or shorten the description",
         bytes, kMaxConfigBytes);
  }
}

}  // namespace

void check(const Recipe& recipe) {
  auto copy = recipe;
  check_ranges(list_fields(copy), "");
  check_text(recipe);
  check_train(recipe);
  if (recipe.converted()) {
    data::check_values(recipe.data);  // others had the data
  } else {
    data::check(recipe.data);
  }
  auto model = recipe.model;  // what the data will decide may still be open
  if (model.vocabulary == 0) model.vocabulary = 1;
  if (model.classes == 0) model.classes = 2;
  models::check(model);
  const auto& d = recipe.data;
  const bool labelled = d.task == "classify" || d.task == "match";
  if (recipe.converted() && recipe.model.head == "none") return;
  require(recipe.model.head == (labelled ? d.task : "lm"), "model.head",
          fmt::format("\"{}\" for data.task = \"{}\"", labelled ? d.task : "lm", d.task),
          recipe.model.head);
  if (!labelled) {
    require(recipe.model.causal == (d.objective == "causal"), "model.causal",
            fmt::format("{} for data.objective = \"{}\"", d.objective == "causal", d.objective),
            recipe.model.causal);
  }
}

Recipe read_recipe(const std::string& path, const std::vector<std::string>& assignments,
                   const std::vector<std::string>& changes, const Recipe& defaults) {
  Recipe recipe = defaults;
  auto tree = read_recipe_file(path);
  for (const auto& assignment : assignments) tree.set(assignment);
  for (const auto& change : changes) tree.set(change, "--change");
  tree.read_into(list_fields(recipe));
  data::look_beside_recipe(
      recipe.data, [&](std::string_view key) { return tree.file_of("data." + std::string(key)); });
  // The model is as long as its rows unless the recipe says otherwise.
  if (!tree.contains("model.max_length")) recipe.model.max_length = recipe.data.length;
  try {
    check(recipe);
  } catch (const Error& error) {  // what is missing stands nowhere: the file is the place
    fail(error.code(), "{}: {}", path, error.what());
  }
  return recipe;
}

Recipe recipe_from_json(const std::string& text, const std::string& source, std::int64_t version) {
  Recipe recipe;
  auto json = parse_json(text, source, {.bytes = kMaxConfigBytes});
  if (!json.is_object()) fail(ExitCode::kCorrupt, "{}: is no JSON object", source);
  complete_config(json, version);
  const auto tree = ConfigTree::from_json(json, source);
  const auto fields = list_fields(recipe);
  tree.read_into(fields);
  for (const auto& field : fields) {
    if (!tree.contains(field.name)) {
      fail(ExitCode::kCorrupt, "{}: {} is missing", source, field.name);
    }
  }
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

}  // namespace performer::run
