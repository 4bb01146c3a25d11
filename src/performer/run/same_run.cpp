#include "performer/run/same_run.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "performer/core/config.h"
#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/json.h"
#include "performer/core/log.h"
#include "performer/core/safe_text.h"
#include "performer/core/sha256.h"
#include "performer/run/checkpoint.h"
#include "performer/run/checkpoint_folders.h"
#include "performer/run/tokenizer_files.h"

namespace performer::run {
namespace {

using Json = nlohmann::ordered_json;

// The paths of data are free since what they hold is compared: files move, and are named otherwise
// from another folder.
constexpr std::array<std::string_view, 19> kFree = {
    "description",       "train.steps",         "train.seconds",      "train.log_every",
    "train.valid_every", "train.valid_batches", "train.patience",     "train.checkpoint_every",
    "train.keep_last",   "train.keep_every",    "train.sample_every", "train.workers",
    "data.train",        "data.valid",          "data.test",          "data.ood",
    "data.split_table",  "data.documents",      "data.tokenizer"};
constexpr std::array<std::string_view, 2> kOnRequest = {"train.batch", "train.step_tokens"};
constexpr std::array<std::string_view, 3> kSectionsOnRequest = {"optimizer.", "schedule.",
                                                                "guard."};

bool free(std::string_view key) {
  return std::find(kFree.begin(), kFree.end(), key) != kFree.end();
}

bool on_request(std::string_view key) {
  return std::find(kOnRequest.begin(), kOnRequest.end(), key) != kOnRequest.end() ||
         std::any_of(kSectionsOnRequest.begin(), kSectionsOnRequest.end(),
                     [&](std::string_view section) { return key.starts_with(section); });
}

std::string text_of(const Field& field) {
  return std::visit([](const auto* value) { return Json(*value).dump(); }, field.value);
}

// All differences at once, and the options that settle all of them.
[[noreturn]] void refuse(const std::vector<Change>& differences, const Resumed& resumed) {
  std::string what, theirs, mine;
  for (const auto& d : differences) {
    what +=
        fmt::format("{} is {} there and {} here; ", d.key, shortened(d.before), shortened(d.after));
    theirs += fmt::format(" --set {}={}", d.key, d.before);
    mine += fmt::format(" --change {}={}", d.key, d.after);
  }
  const bool may_change =
      std::ranges::all_of(differences, [](const Change& d) { return on_request(d.key); });
  fail(ExitCode::kUsage,
       "{}: {} differs from the recipe of that run: {}go on with the run's by{}, {}or take another "
       "--out, or --restart",
       resumed.place, resumed.recipe, what, theirs,
       may_change ? fmt::format("with yours by{}, ", mine) : std::string());
}

std::string of_file(const std::map<std::string, std::string>& files, const char* name) {
  const auto found = files.find(name);
  return found == files.end() ? std::string() : found->second;
}

}  // namespace

Json to_json(const std::vector<Change>& changes) {
  auto json = Json::array();
  for (const auto& c : changes) {
    json.push_back({{"step", c.step},
                    {"key", c.key},
                    {"before", parse_json(c.before, c.key)},
                    {"after", parse_json(c.after, c.key)}});
  }
  return json;
}

std::vector<Change> changes_from_json(const JsonView& json) {
  std::vector<Change> changes;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const auto c = json.at(i);
    changes.push_back({c.at("step").integer(0), c.at("key").string(), c.at("before").value().dump(),
                       c.at("after").value().dump()});
  }
  return changes;
}

Recipe defaults_of_run(const std::filesystem::path& run_folder) {
  Recipe defaults;
  if (!is_there(run_folder / "checkpoints")) return defaults;
  auto steps = saved_steps(run_folder / "checkpoints");
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t step : steps) {
    const auto folder = checkpoint_folder(run_folder, step);
    try {
      const auto config = read_config(folder);
      const auto before =
          recipe_from_json(config.text, (folder / "config.json").string(), config.version);
      auto& rounding = defaults.model.attention.rounding;
      if (rounding != before.model.attention.rounding) {
        log_info("model.attention.rounding is {}, as in {}", before.model.attention.rounding,
                 folder.string());
      }
      rounding = before.model.attention.rounding;
      break;
    } catch (const Error&) {  // an older one tells as well
    }
  }
  return defaults;
}

void check_changeable(const std::string& key) {
  if (free(key) || on_request(key)) return;
  fail(ExitCode::kUsage,
       "--change {}: a run cannot go on with another one; what can change is train.batch, "
       "train.step_tokens and the keys of optimizer, schedule and guard",
       key);
}

std::vector<Change> compare_recipes(const Recipe& before, const Recipe& now,
                                    const Resumed& resumed) {
  auto old_recipe = before;
  auto new_recipe = now;
  const auto old_fields = list_fields(old_recipe), new_fields = list_fields(new_recipe);
  std::vector<Change> changes, refused;
  for (std::size_t i = 0; i < old_fields.size(); ++i) {
    const auto& key = old_fields[i].name;
    const auto old_text = text_of(old_fields[i]), new_text = text_of(new_fields[i]);
    // The rates of these schedules follow from the number of steps.
    const bool shapes_rates =
        key == "train.steps" && (now.schedule.kind == "linear" || now.schedule.kind == "cosine");
    if (old_text == new_text || (free(key) && !shapes_rates)) continue;
    const bool may = free(key) || resumed.changeable.contains(key);
    (may ? changes : refused).push_back({resumed.step, key, old_text, new_text});
  }
  if (!refused.empty()) refuse(refused, resumed);
  return changes;
}

bool changes_losses(const Change& change) {
  return change.key.starts_with("data.") || change.key == "train.batch" ||
         change.key == "train.step_tokens";
}

void check_same_tokens(const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& now, const std::string& place) {
  const auto refuse = [&](const std::string& what, const std::string& there,
                          const std::string& here) {
    fail(ExitCode::kUsage,
         "{}: is of another run: {} {} there and {} here; take another --out, or --restart", place,
         what, there, here);
  };
  const auto was = parse_tokenizer_json(of_file(before, "tokenizer.json"), place);
  const auto is = parse_tokenizer_json(of_file(now, "tokenizer.json"), "the recipe");
  if (!was.is_object()) fail(ExitCode::kCorrupt, "{}/tokenizer.json: is no JSON object", place);
  for (const auto& [key, value] : is.items()) {
    const auto old_value = was.contains(key) ? was[key] : Json();
    if (old_value != value) {
      refuse(key == "classes" ? "the classes are" : fmt::format("{} of the tokens is", key),
             shortened(old_value.dump()), shortened(value.dump()));
    }
  }
  const auto old_model = of_file(before, "tokenizer.model"),
             model = of_file(now, "tokenizer.model");
  if (old_model != model) {
    const auto shown = [](const std::string& bytes) {
      return fmt::format("{}… ({} bytes)", sha256_of(bytes).substr(0, 8), bytes.size());
    };
    refuse("the tokenizer's model has hash", shown(old_model), shown(model));
  }
}

}  // namespace performer::run
