#include "performer/run/recipe_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "performer/core/error.h"
#include "performer/run/train_config.h"
#include "tests/support/failure.h"
#include "tests/support/temporary_folder.h"

namespace performer::run {
namespace {

using ::performer::testing::failure_of;
using ::performer::testing::TemporaryFolder;

class RecipeFile : public ::testing::Test {
 protected:
  OptimizerConfig read(const std::string& name) const {
    OptimizerConfig config;
    read_recipe_file(folder_.file(name)).read_into(list_fields(config));
    return config;
  }
  std::string refused(const std::string& name) const {
    const auto failure = failure_of([&] { read_recipe_file(folder_.file(name)); });
    EXPECT_EQ(failure.code, ExitCode::kUsage);
    EXPECT_TRUE(failure.message.starts_with(folder_.path().string()));
    return failure.message.substr(folder_.path().string().size() + 1);
  }

  TemporaryFolder folder_;
};

TEST_F(RecipeFile, OwnValuesStandOverThoseOfTheBase) {
  folder_.write("a.toml", "rate = 1.0\nclip = 2.0\neps = 3.0\n");
  folder_.write("b.toml", "base = 'a.toml'\nclip = 4.0\neps = 5.0\n");
  folder_.write("c.toml", "eps = 6.0\nbase = 'b.toml'\n");
  const auto config = read("c.toml");
  EXPECT_EQ(config.rate, 1);
  EXPECT_EQ(config.clip, 4);
  EXPECT_EQ(config.eps, 6);
}

TEST_F(RecipeFile, AnotherNameOfAKeyStandsOverTheBaseToo) {
  folder_.write("a.toml", "rate = 1.0\n");
  folder_.write("b.toml", "base = 'a.toml'\nlr = 2.0\n");
  EXPECT_EQ(read("b.toml").rate, 2);
  folder_.write("twice.toml", "lr = 1.0\nlearning_rate = 2.0\n");
  EXPECT_NE(failure_of([&] { read("twice.toml"); }).message.find("are the same key; keep one"),
            std::string::npos);
}

TEST_F(RecipeFile, TheBaseLiesBesideTheFileThatNamesIt) {
  std::filesystem::create_directories(folder_ / "inner/base");
  folder_.write("inner/base/a.toml", "rate = 1.0\n");
  folder_.write("inner/b.toml", "base = 'base/a.toml'\nclip = 2.0\n");
  folder_.write("c.toml", "base = 'inner/b.toml'\n");
  EXPECT_EQ(read("c.toml").rate, 1);
  const auto tree = read_recipe_file(folder_.file("c.toml"));
  EXPECT_EQ(tree.file_of("clip"), folder_.file("inner/b.toml"));
  EXPECT_EQ(tree.file_of("rate"), folder_.file("inner/base/a.toml"));
  EXPECT_EQ(tree.file_of("eps"), "");
}

TEST_F(RecipeFile, MistakesInTheBaseAreNamedThere) {
  folder_.write("a.toml", "\nraet = 1.0\n");
  folder_.write("b.toml", "base = 'a.toml'\n");
  EXPECT_EQ(failure_of([&] { read("b.toml"); }).message,
            folder_.file("a.toml") + ":2: unknown key raet; did you mean rate?");
}

TEST_F(RecipeFile, RefusesBasesThatAreNone) {
  folder_.write("number.toml", "\nbase = 3\n");
  EXPECT_EQ(refused("number.toml"), "number.toml:2: base must be a string, got 3");
  folder_.write("table.toml", "[base]\nrate = 1.0\n");
  EXPECT_NE(failure_of([&] { read("table.toml"); }).message.find("unknown key base.rate"),
            std::string::npos);
  folder_.write("absent.toml", "base = 'x.toml'\n");
  EXPECT_EQ(refused("absent.toml"),
            "absent.toml:1: base \"" + folder_.file("x.toml") +
                "\" is not there; name a recipe by its path from this file's folder");
  folder_.write("folder.toml", "base = '.'\n");
  EXPECT_NE(refused("folder.toml").find("is not there"), std::string::npos);
}

TEST_F(RecipeFile, RefusesLoopsAndLongChains) {
  folder_.write("self.toml", "base = 'self.toml'\n");
  const auto self = "\"" + folder_.file("self.toml") + "\"";
  EXPECT_EQ(refused("self.toml"),
            "self.toml:1: base " + self + " comes back to " + self + "; take it out");
  folder_.write("a.toml", "base = 'b.toml'\n");
  folder_.write("b.toml", "base = './a.toml'\n");
  EXPECT_NE(refused("a.toml").find("b.toml:1: base"), std::string::npos);
  folder_.write("0.toml", "rate = 1.0\n");
  for (int i = 1; i <= 9; ++i) {
    const auto base = std::to_string(i - 1);
    folder_.write(std::to_string(i) + ".toml", "base = '" + base + ".toml'\n");
  }
  EXPECT_EQ(read("8.toml").rate, 1);
  EXPECT_NE(refused("9.toml").find("more than 8 recipes in a row"), std::string::npos);
}

}  // namespace
}  // namespace performer::run
