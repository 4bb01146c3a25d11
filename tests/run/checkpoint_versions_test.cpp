// Checkpoints of older programs lack keys that came later; today's lack none.
#include "performer/run/checkpoint_versions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "performer/core/config.h"
#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/run/checkpoint_manifest.h"
#include "performer/run/progress.h"
#include "performer/run/recipe.h"
#include "tests/support/failure.h"

namespace performer::run {
namespace {

using ::performer::testing::failure_of;
using Json = nlohmann::ordered_json;

Json config_without(std::string key) {
  for (auto& letter : key) {
    if (letter == '.') letter = '/';
  }
  auto json = parse_json(recipe_to_json({}), "config.json");
  const Json::json_pointer place("/" + key);
  json[place.parent_pointer()].erase(place.back());
  return json;
}

// Keys of version 4, whose defaults are what older programs did.
bool came_with_conversion(const std::string& key) {
  static const std::set<std::string> kKeys{"source",
                                           "model.kv_heads",
                                           "model.head_width",
                                           "model.norm_eps",
                                           "model.embedding_norm",
                                           "model.qkv_bias",
                                           "model.attention_output_bias",
                                           "model.ff_bias",
                                           "model.rotary_base",
                                           "model.rotary_frequencies",
                                           "model.token_types",
                                           "model.token_dropout",
                                           "model.head_transform",
                                           "model.logits_bias"};
  return kKeys.contains(key);
}

Json trainer() {
  Progress progress;
  progress.step = 3;
  progress.data = {{"train", {5, "ab"}}};
  return parse_json(progress_to_json(progress, {{"reporter", {{"lines", 7}}}}), "trainer.json");
}

TEST(CheckpointVersions, OfTodayHaveEveryKeyOfTheRecipe) {
  Recipe recipe;
  for (const auto& field : list_fields(recipe)) {
    const auto failure =
        failure_of([&] { recipe_from_json(config_without(field.name).dump(), "config.json"); });
    EXPECT_EQ(failure.code, ExitCode::kCorrupt) << field.name;
    EXPECT_EQ(failure.message, "config.json: " + field.name + " is missing");
  }
}

TEST(CheckpointVersions, OfBeforeLackKeysThatCameLaterAlone) {
  for (std::int64_t version = 1; version < kCheckpointVersion; ++version) {
    Recipe recipe;
    for (const auto& field : list_fields(recipe)) {
      const auto read = [&] {
        return recipe_from_json(config_without(field.name).dump(), "config.json", version);
      };
      if (field.name == "guard.max_rollbacks" && version < 2) {
        EXPECT_EQ(read().guard.max_rollbacks, GuardConfig().max_rollbacks);
      } else if (field.name == "model.attention.rounding" && version < 3) {
        EXPECT_EQ(read().model.attention.rounding, "none") << "as their projections were drawn";
      } else if (field.name == "model.attention.near" && version < 3) {
        EXPECT_EQ(read().model.attention.near, 0);
      } else if (came_with_conversion(field.name)) {
        EXPECT_EQ(recipe_to_json(read()), recipe_to_json({})) << field.name << ": as the default";
      } else {
        EXPECT_EQ(failure_of(read).code, ExitCode::kCorrupt) << field.name << ", " << version;
      }
    }
  }
}

TEST(CheckpointVersions, OfTheFirstActAsTheirProgramsDid) {
  auto json = trainer();
  for (const auto* key : {"regular", "rollbacks", "data", "changes"}) json.erase(key);
  json["reporter"].erase("lines");
  for (std::int64_t version = 2; version <= kCheckpointVersion; ++version) {
    auto later = json;
    complete_trainer(later, version);
    EXPECT_EQ(later, json);
  }
  complete_trainer(json, 1);
  const auto progress = progress_from_json(JsonView(json, "trainer.json"), 3, 1);
  EXPECT_EQ(progress.regular, 0);
  EXPECT_EQ(progress.rollbacks, 0);
  EXPECT_TRUE(progress.data.empty());
  EXPECT_TRUE(progress.changes.empty());
  EXPECT_EQ(json["reporter"]["lines"], 0);
}

TEST(CheckpointVersions, KeepWhatTheFirstSaysItself) {
  auto json = trainer();
  complete_trainer(json, 1);
  EXPECT_EQ(json, trainer());
}

// Only the first version could be without a record of its data.
TEST(CheckpointVersions, OfTheSecondMustSayTheirData) {
  auto json = trainer();
  json["data"] = nullptr;
  const auto read = [&](std::int64_t version) {
    return progress_from_json(JsonView(json, "trainer.json"), 3, version);
  };
  EXPECT_TRUE(read(1).data.empty());
  EXPECT_EQ(failure_of([&] { read(2); }).code, ExitCode::kCorrupt);
}

TEST(CheckpointVersions, OfTodayHaveEveryKeyOfTheProgress) {
  for (const auto* key : {"step", "position", "extra_draws", "best_loss", "best_step", "worse",
                          "overfit", "skipped", "regular", "rollbacks", "data", "changes"}) {
    auto json = trainer();
    json.erase(key);
    complete_trainer(json, kCheckpointVersion);
    const auto failure = failure_of([&] { progress_from_json(JsonView(json, "trainer.json"), 3); });
    EXPECT_EQ(failure.message, std::string("trainer.json: ") + key + " is missing");
  }
}

TEST(CheckpointVersions, AreWrittenInTheManifest) {
  const auto read = [](std::int64_t version) {
    return parse_manifest(manifest_text({3, {{"a", 1, "00"}}, version}), "m").version;
  };
  EXPECT_EQ(parse_manifest(manifest_text({3, {}}), "m").version, kCheckpointVersion);
  EXPECT_EQ(read(1), 1);
  for (const std::int64_t version : {std::int64_t{0}, kCheckpointVersion + 1}) {
    const auto failure = failure_of([&] { read(version); });
    EXPECT_EQ(failure.code, ExitCode::kBadInput) << version;
    EXPECT_NE(failure.message.find("reads performer-checkpoint of 1 to 4"), std::string::npos);
  }
}

}  // namespace
}  // namespace performer::run
