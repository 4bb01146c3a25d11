#include "performer/core/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "performer/core/error.h"

namespace performer {

struct Inner {
  std::string kind = "favor";
  double rate = 1e-3;
};

struct Outer {
  std::int64_t layers = 6;
  bool causal = true;
  std::vector<std::string> kinds;
  std::vector<std::int64_t> sizes;
  Inner inner;
};

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, Inner>
void visit_fields(Config& c, Visitor&& field) {
  field("kind", c.kind, "Kind.", {"favor", "exact"});
  field("rate", c.rate, "Rate.");
}

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, Outer>
void visit_fields(Config& c, Visitor&& field) {
  field("layers", c.layers, "Layers.");
  field("causal", c.causal, "Causal.");
  field("kinds", c.kinds, "Kinds.");
  field("sizes", c.sizes, "Sizes.");
  field("inner", c.inner, "");
}

namespace {

Outer read(const std::string& toml, const std::vector<std::string>& assignments = {}) {
  Outer config;
  auto tree = ConfigTree::from_toml(toml, "recipe.toml");
  for (const auto& assignment : assignments) tree.set(assignment);
  tree.read_into(list_fields(config));
  return config;
}

std::string complaint(const std::string& toml, const std::vector<std::string>& assignments = {}) {
  try {
    read(toml, assignments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Config, ReadsEveryTypeAndKeepsDefaultsOfWhatIsAbsent) {
  const auto c = read(
      "layers = 3\nkinds = [\"exact\", \"favor\"]\nsizes = [4, 5]\n[inner]\nkind = \"exact\"\nrate "
      "= 2\n");
  EXPECT_EQ(c.layers, 3);
  EXPECT_TRUE(c.causal);
  EXPECT_EQ(c.kinds, (std::vector<std::string>{"exact", "favor"}));
  EXPECT_EQ(c.sizes, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(c.inner.kind, "exact");
  EXPECT_EQ(c.inner.rate, 2.0);
}

TEST(Config, AssignmentsComeLastAndTakeBareWords) {
  const auto c = read("layers = 3\n", {"layers=4", "inner.kind=exact", "inner.rate=1e-2",
                                       "causal=false", "kinds=[\"a\"]"});
  EXPECT_EQ(c.layers, 4);
  EXPECT_EQ(c.inner.kind, "exact");
  EXPECT_EQ(c.inner.rate, 0.01);
  EXPECT_FALSE(c.causal);
  EXPECT_EQ(c.kinds, std::vector<std::string>{"a"});
}

TEST(Config, NamesPlaceAndSuggestionOfAnUnknownKey) {
  EXPECT_EQ(complaint("causal = true\nlayer = 3\n"),
            "recipe.toml:2: unknown key layer; did you mean layers?");
  EXPECT_EQ(complaint("[inner]\n\nkid = \"exact\"\n"),
            "recipe.toml:3: unknown key inner.kid; did you mean inner.kind?");
  EXPECT_EQ(complaint("", {"rate=2"}), "--set rate=2: unknown key rate; did you mean inner.rate?");
  EXPECT_EQ(complaint("zzzzzzzz = 3\n"),
            "recipe.toml:1: unknown key zzzzzzzz; --dump-config lists the known ones");
}

TEST(Config, RefusesWrongTypesAndWords) {
  EXPECT_EQ(complaint("layers = \"3\"\n"),
            "recipe.toml:1: layers must be a whole number, got \"3\"");
  EXPECT_EQ(complaint("layers = 3.5\n"), "recipe.toml:1: layers must be a whole number, got 3.5");
  EXPECT_EQ(complaint("causal = 1\n"), "recipe.toml:1: causal must be true or false, got 1");
  EXPECT_EQ(complaint("kinds = [1]\n"), "recipe.toml:1: kinds must be a list of strings, got [1]");
  EXPECT_EQ(complaint("inner = 1\n"),
            "recipe.toml:1: unknown key inner; --dump-config lists the known ones");
  EXPECT_EQ(complaint("[inner]\nkind = \"soft\"\n"),
            "recipe.toml:2: inner.kind must be one of favor, exact, got \"soft\"");
  EXPECT_NE(complaint("[inner]\nrate = inf\n").find("recipe.toml:2"), std::string::npos);
  EXPECT_NE(complaint("layers = = 3\n").find("recipe.toml:1: "), std::string::npos);
  EXPECT_NE(complaint("", {"layers"}).find("key=value"), std::string::npos);
}

TEST(Config, WritesWhatItReads) {
  auto c = read("layers = 3\nkinds = [\"a\\\"b\"]\n[inner]\nrate = 0.1\n");
  const auto again = read(fields_to_toml(list_fields(c)));
  EXPECT_EQ(again.layers, 3);
  EXPECT_EQ(again.kinds, c.kinds);
  EXPECT_EQ(again.inner.rate, 0.1);
  Outer third;
  ConfigTree::from_json(fields_to_json(list_fields(c)), "config.json")
      .read_into(list_fields(third));
  EXPECT_EQ(third.kinds, c.kinds);
  EXPECT_EQ(third.inner.rate, 0.1);
}

}  // namespace
}  // namespace performer
