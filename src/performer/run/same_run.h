#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "performer/core/json.h"
#include "performer/run/recipe.h"

/// What a run may go on with after an interruption: steps, logging and saving as one likes; rates,
/// batches, schedule and guards when told so; never another model, tokenizer or set of classes.
namespace performer::run {

/// A key of the recipe, or "data", that a run went on with a new value of, after `step`.
struct Change {
  std::int64_t step = 0;
  std::string key, before, after;  // JSON texts
};

nlohmann::ordered_json to_json(const std::vector<Change>& changes);
std::vector<Change> changes_from_json(const JsonView& json);

/// kUsage unless a run may go on with another value of this key when told so (`--change`).
void check_changeable(const std::string& key);

struct Resumed {
  std::string place;   // the checkpoint, in errors
  std::string recipe;  // the file of the recipe, in errors
  std::int64_t step = 0;
  std::set<std::string> changeable;  // keys that the user has named
};

/// The defaults of a recipe that goes on with the run in `run_folder`, if there is one: a key that
/// recipes did not have when the run began is as the run has it, so that the same command resumes.
/// Whether its checkpoints are sound is for resuming to say.
Recipe defaults_of_run(const std::filesystem::path& run_folder);

/// The keys that differ and matter; kUsage naming all that must not differ.
std::vector<Change> compare_recipes(const Recipe& before, const Recipe& now,
                                    const Resumed& resumed);

/// Whether the losses before a change say nothing of those after it: other data, other batches.
bool changes_losses(const Change& change);

/// kUsage, saying what differs, unless both hold the same meaning of tokens and classes.
void check_same_tokens(const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& now, const std::string& place);

}  // namespace performer::run
