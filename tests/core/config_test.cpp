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
  field("kind", c.kind, "Kind.", {"favor", "exact"}, Hints{{"softmax", "exact"}});
  field("rate", c.rate, "Rate.", Aliases{"lr", "learning_rate"}, Resembles{"epochs"});
}

template <class Config, class Visitor>
requires std::is_same_v<std::remove_const_t<Config>, Outer>
void visit_fields(Config& c, Visitor&& field) {
  field("layers", c.layers, "Layers.", Range{1, 100}, Aliases{"num_layers"});
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
  EXPECT_EQ(complaint("", {"rate=2"}), "--set rate: unknown key rate; did you mean inner.rate?");
  EXPECT_EQ(complaint("zzzzzzzz = 3\n"),
            "recipe.toml:1: unknown key zzzzzzzz; --dump-config lists the known ones");
}

TEST(Config, RefusesWrongTypesAndWords) {
  EXPECT_EQ(complaint("layers = \"3\"\n"),
            "recipe.toml:1: layers must be a whole number, got \"3\"");
  EXPECT_EQ(complaint("layers = 3.5\n"), "recipe.toml:1: layers must be a whole number, got 3.5");
  EXPECT_EQ(complaint("causal = 1\n"), "recipe.toml:1: causal must be true or false, got 1");
  EXPECT_EQ(complaint("kinds = [1]\n"),
            "recipe.toml:1: kinds must be a string or a list of strings, got [1]");
  EXPECT_EQ(complaint("inner = 1\n"),
            "recipe.toml:1: unknown key inner; --dump-config lists the known ones");
  EXPECT_EQ(complaint("[inner]\nkind = \"soft\"\n"),
            "recipe.toml:2: inner.kind must be one of favor, exact, got \"soft\"");
  EXPECT_NE(complaint("[inner]\nrate = inf\n").find("recipe.toml:2"), std::string::npos);
  EXPECT_NE(complaint("layers = = 3\n").find("recipe.toml:1: "), std::string::npos);
  EXPECT_NE(complaint("", {"layers"}).find("key=value"), std::string::npos);
}

TEST(Config, RefusesWholeNumbersOutsideTheirRangeWithValueAndLimit) {
  EXPECT_EQ(complaint("layers = 101\n"), "recipe.toml:1: layers must be at most 100, got 101");
  EXPECT_EQ(complaint("layers = 0\n"), "recipe.toml:1: layers must be at least 1, got 0");
  EXPECT_EQ(complaint("", {"layers=1000000000"}),
            "--set layers: layers must be at most 100, got 1000000000");
  EXPECT_NE(complaint("", {"layers=9223372036854775808"}).find("must be a whole number"),
            std::string::npos);
  Outer config;
  config.layers = -1;
  try {
    check_ranges(list_fields(config), "outer.");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "outer.layers: must be at least 1, got -1");
  }
}

TEST(Config, TakesTheNamesThatOtherProgramsUse) {
  const auto c = read("num_layers = 3\n[inner]\nlr = 0.5\n");
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.inner.rate, 0.5);
  EXPECT_EQ(read("[inner]\nlr = 0.5\n", {"inner.rate=0.25"}).inner.rate, 0.25);
  EXPECT_EQ(read("[inner]\nrate = 0.5\n", {"inner.lr=0.25"}).inner.rate, 0.25);
  EXPECT_EQ(complaint("[inner]\nlr = 1\nrate = 2\n"),
            "recipe.toml:3: inner.rate and inner.lr (recipe.toml:2) are the same key; keep one");
}

TEST(Config, SuggestsTheOwnNameForAnother) {
  EXPECT_EQ(read("", {"lr=2"}).inner.rate, 2);  // no other field has that name
  EXPECT_EQ(complaint("", {"inner.epochs=2"}),
            "--set inner.epochs: unknown key inner.epochs; did you mean inner.rate?");
  EXPECT_EQ(complaint("[inner]\nlearning_rte = 2\n"),
            "recipe.toml:2: unknown key inner.learning_rte; did you mean inner.rate?");
  EXPECT_EQ(complaint("", {"inner.kind=softmax"}),
            "--set inner.kind: inner.kind must be one of favor, exact, got \"softmax\"; did you "
            "mean exact?");
  EXPECT_EQ(complaint("", {"inner.kind=favour"}),
            "--set inner.kind: inner.kind must be one of favor, exact, got \"favour\"; did you "
            "mean favor?");
}

// Repeats a text n times.
std::string times(std::size_t n, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < n; ++i) all += text;
  return all;
}

TEST(Config, RefusesTomlThatWouldExhaustTheStack) {
  const std::vector<std::string> texts{
      "a = " + times(100'000, "["),
      "a = " + times(100'000, "[") + times(100'000, "]"),
      "a = " + times(100'000, "{a = "),
      "[" + times(100'000, "a.") + "a]\nb = 1\n",
      times(100'000, "a.") + "a = 1\n",
      times(100'000, "\"a\" . ") + "a = 1\n",
      "x = { y = { " + times(100'000, "a.") + "a = 1 } }\n",
      "a = \"\"\"\n\"\" # \"\"\"\n" + times(100'000, "b.") + "b = 1\n",
      "x = { k = \"\"\"y\"\"\"\", " + times(100'000, "a.") + "a = 1 }\n",
      "x = { k = '''y''''', " + times(100'000, "a.") + "a = 1 }\n",
      "x = [ \"\"\"y\"\"\"\"\", " + times(100'000, "[") + times(100'000, "]") + " ]\n",
  };
  for (const auto& text : texts) {
    const auto said = complaint(text);
    EXPECT_TRUE(said.find("nested deeper than 32 brackets") != std::string::npos ||
                said.find("a key of more than 16 parts") != std::string::npos)
        << said.substr(0, 200);
  }
  EXPECT_NE(complaint("", {"layers=" + times(100'000, "[")}).find("must be a whole number"),
            std::string::npos);
  const std::string header = "[" + times(15, "a.") + "a]\n";
  EXPECT_NE(complaint(header + times(15, "a.") + "a = { " + times(15, "a.") + "a = 1 }\n")
                .find("values are numbers"),
            std::string::npos)
      << "many keys, each as long as it may be, in one another";
  EXPECT_EQ(read("[inner]\nkind = 'exact' # " + times(100, "a.[{") + "\n").inner.kind, "exact");
  EXPECT_EQ(read("kinds = [\"" + times(100, "a.[{") + "\"]\n").kinds[0], times(100, "a.[{"));
  const std::string quotes = times(3, "'");
  EXPECT_EQ(read("kinds = [" + quotes + times(100, "a.[{") + quotes + "]\n").kinds[0],
            times(100, "a.[{"));
}

TEST(Config, RefusesTextsThatBreakTheParsersAssumptions) {
  EXPECT_TRUE(complaint("layers =1979-05-27 3\n").starts_with("recipe.toml: not TOML"));
  EXPECT_TRUE(complaint("[\\U[a]]\n").starts_with("recipe.toml"));
  EXPECT_NE(complaint("layers = 1979-05-27\n").find("values are numbers, strings"),
            std::string::npos);
  EXPECT_NE(complaint("", {"layers=1979-05-27 3"}).find("must be a whole number"),
            std::string::npos);
}

TEST(Config, TakesLettersOutsideAsciiInStringsAndCommentsAlone) {
  const std::string want = "a letter outside ASCII, where only strings and comments may have one";
  EXPECT_EQ(complaint("causal = true\ncaf\xc3\xa9 = 1\n"), "recipe.toml:2: " + want);
  EXPECT_EQ(complaint("\xef\xbb\xbe layers = 1\n"), "recipe.toml:1: " + want);
  EXPECT_EQ(read("\xef\xbb\xbflayers = 3 # caf\xc3\xa9\n").layers, 3);
  EXPECT_EQ(read("kinds = [\"caf\xc3\xa9\"]\n").kinds[0], "caf\xc3\xa9");
  EXPECT_EQ(complaint("kinds = [\"\"\"x\"\"\"\", caf\xc3\xa9]\n"), "recipe.toml:1: " + want);
}

// Where the parser sees no string behind a quote, it met the letter with undefined behaviour.
TEST(Config, TakesNoLetterOutsideAsciiBehindAQuoteThatBeginsNoString) {
  const std::string letter = "\xc9\xab";
  for (const char* word : {"09'''", "5 \"", "5.\"\"\"", "[1, 2.'", "{a = 1.'", "\"a\"'", "09[[['''",
                           "82{\"", "a ['", "'a'{\"", "{{\""}) {
    EXPECT_EQ(
        complaint("layers = " + (word + letter) + "\n"),
        "recipe.toml:1: a letter outside ASCII, where only strings and comments may have one");
  }
}

TEST(Config, TakesEveryPlaceOfAString) {
  const auto c = read(
      "\"layers\" = 3 # '\n'inner'.\"rate\"=2.0\r\nkinds = [ '\xc3\xa9',\t\"b\", # \"\n "
      "\"\"\"c\"\"\"\n]\n");
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.kinds, (std::vector<std::string>{"\xc3\xa9", "b", "c"}));
  EXPECT_EQ(read("inner = { 'rate' = 3.0 }\n").inner.rate, 3);
  EXPECT_EQ(read("[ \"inner\" ]\nrate = 3.0\n").inner.rate, 3);
  EXPECT_EQ(read("[inner]\n'rate' = 3.0\n").inner.rate, 3);
  EXPECT_NE(complaint("a.'\xc3\xa9'.b = [[1, 2], [3]]\n").find("unknown key"), std::string::npos);
}

TEST(Config, TellsWhatTheParserMetInOneLine) {
  EXPECT_EQ(complaint("causal = t\nlayers = 1\n").find('\n'), std::string::npos);
}

TEST(Config, AssignmentsTakeAnyPath) {
  const std::string deep = times(20, "a.") + "fa";
  for (const std::string& path : {std::string("\xc3\xa9t\xc3\xa9.fa"), deep, times(40, "[")}) {
    EXPECT_EQ(read("", {"kinds=" + path}).kinds, std::vector<std::string>{path});
  }
}

TEST(Config, TheLastAssignmentWinsUnderAnyName) {
  EXPECT_EQ(read("", {"inner.rate=1", "inner.lr=2", "inner.rate=3"}).inner.rate, 3.0);
  EXPECT_EQ(read("[inner]\nrate = 1\n", {"inner.lr=2", "inner.rate=3"}).inner.rate, 3.0);
  EXPECT_EQ(read("", {"inner.lr=2", "inner.rate=3", "inner.lr=4"}).inner.rate, 4.0);
}

TEST(Config, ChecksTheChoicesOfAStructThatWasFilledByHand) {
  Outer config;
  config.inner.kind = "softmax";
  try {
    check_choices(list_fields(config), "outer.");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "outer.inner.kind: must be one of favor, exact, got \"softmax\"; did you mean "
                 "exact?");
  }
}

TEST(Config, RefusesMoreKeysThanAnyRecipeHas) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += fmt::format("k{} = 1\n", i);
  EXPECT_NE(complaint(text).find("more than 10000 keys"), std::string::npos);
}

TEST(Config, ShowsNoMoreThanALineOfWhatItRefuses) {
  const std::string odd = "\"\\u001b[31m" + times(10'000, "x") + "\"";
  const auto key = complaint(odd + " = 1\n");
  EXPECT_LT(key.size(), 300) << key;
  EXPECT_EQ(key.find('\x1b'), std::string::npos);
  EXPECT_LT(complaint("layers = " + odd + "\n").size(), 300);
  EXPECT_LT(complaint("", {"layers=" + times(10'000, "x")}).size(), 300);
  EXPECT_LT(complaint("", {"inner.kind=" + times(10'000, "x")}).size(), 300);
}

TEST(Config, RefusesTextThatIsNotUtf8) {
  EXPECT_NE(complaint("a = \"caf\xe9\"\n").find("recipe.toml:1: "), std::string::npos);
  EXPECT_EQ(complaint("", {"inner.kind=caf\xe9"}), "--set \"inner.kind=caf\\ufffd\": is not UTF-8");
}

TEST(Config, AHostileObjectIsReadInBounds) {
  nlohmann::ordered_json object;
  object["\x1b[31m"] = 1;
  Outer config;
  try {
    ConfigTree::from_json(object, "config.json").read_into(list_fields(config));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "config.json: unknown key \"\\u001b[31m\"; --dump-config lists the "
                 "known ones");
  }
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
