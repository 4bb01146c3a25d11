// What a checkpoint could not be read with is refused before it is written.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "performer/core/error.h"
#include "performer/run/checkpoint.h"
#include "performer/run/make_model.h"
#include "performer/run/progress.h"
#include "performer/run/recipe.h"
#include "performer/run/tokenizer_files.h"
#include "tests/support/failure.h"

namespace performer::run {
namespace {

using ::performer::testing::Failure;
using ::performer::testing::failure_of;

Recipe described_by(std::size_t quotes) {
  Recipe recipe;
  recipe.data.train = {{"train.fasta"}};
  recipe.description = std::string(quotes, '"');  // two bytes each in JSON
  return recipe;
}

data::TokenSpace labelled_by(std::size_t classes, std::size_t bytes) {
  auto space = data::byte_space();
  for (std::size_t i = 0; i < classes; ++i) {
    auto label = std::to_string(i);
    space.classes.push_back(label.append(bytes - label.size(), '\n'));  // two bytes each in JSON
  }
  return space;
}

TEST(CheckpointLimits, ARecipeIsReadAgainOrRefused) {
  const auto most = static_cast<std::size_t>(kMaxConfigBytes) / 2;
  const auto good = described_by(most - 8192);
  check(good);
  EXPECT_EQ(recipe_from_json(recipe_to_json(good), "config.json").description, good.description);
  const Failure failure = failure_of([&] { check(described_by(most)); });
  EXPECT_EQ(failure.code, ExitCode::kUsage);
  EXPECT_NE(failure.message.find("at most 4194304 are possible"), std::string::npos);
}

TEST(CheckpointLimits, WhatTheDataAddToARecipeCountsToo) {
  auto space = data::byte_space();
  space.vocabulary = 1'000'000;
  auto recipe = described_by(0);
  const auto room = kMaxConfigBytes - static_cast<std::int64_t>(recipe_to_json(recipe).size());
  recipe.description = std::string(static_cast<std::size_t>(room), 'x');
  check(recipe);
  EXPECT_EQ(failure_of([&] { fitted_to(recipe, space); }).code, ExitCode::kUsage);
}

TEST(CheckpointLimits, LabelsAreReadAgainOrRefused) {
  const auto good = labelled_by(1000, 4096);
  EXPECT_EQ(tokenizer_from_files(tokenizer_files(good), "step").classes, good.classes);
  const Failure failure = failure_of([] { tokenizer_files(labelled_by(10'000, 4096)); });
  EXPECT_EQ(failure.code, ExitCode::kBadInput);
  EXPECT_NE(failure.message.find("the 10000 labels"), std::string::npos) << failure.message;
}

}  // namespace
}  // namespace performer::run
