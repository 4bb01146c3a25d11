#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "performer/data/data_config.h"
#include "performer/models/model_config.h"
#include "performer/run/checkpoint_manifest.h"
#include "performer/run/train_config.h"

namespace performer::run {

/// All of one experiment: what `performer train` reads, and the config.json of its checkpoints.
struct Recipe {
  std::string description;
  std::string source;
  std::int64_t seed = 0;
  models::ModelConfig model;
  data::DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  GuardConfig guard;

  bool converted() const { return !source.empty(); }
};

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, Recipe>
void visit_fields(Config& c, Visitor&& field) {
  field("description", c.description, "One line for logs and figures.");
  field("source", c.source,
        "Folder that the first weights were converted from, and its hash; empty: none.");
  field("seed", c.seed, "Of initial weights and dropout (data.seed: order of the rows).");
  field("model", c.model, "");
  field("data", c.data, "");
  field("train", c.train, "");
  field("optimizer", c.optimizer, "");
  field("schedule", c.schedule, "");
  field("guard", c.guard, "");
}

/// Reads a recipe, applies the assignments of `--set` and then those of `--change` in order, and
/// checks every rule on it. What none of them names is as in `defaults`.
Recipe read_recipe(const std::string& path, const std::vector<std::string>& assignments,
                   const std::vector<std::string>& changes = {}, const Recipe& defaults = {});
/// The recipe of the config.json of a checkpoint of that version; kCorrupt where a key is missing.
Recipe recipe_from_json(const std::string& text, const std::string& source,
                        std::int64_t version = kCheckpointVersion);
std::string recipe_to_json(const Recipe& recipe);
std::string recipe_to_toml(const Recipe& recipe);

/// Throws unless the parts of the recipe fit each other.
void check(const Recipe& recipe);

}  // namespace performer::run
