#include "performer/core/json.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "performer/core/random.h"
#include "performer/core/safe_text.h"
#include "tests/support/failure.h"

namespace performer {
namespace {

using ::performer::testing::Failure;
using ::performer::testing::failure_of;

std::string complaint_of(const std::string& text, const JsonLimits& limits = {}) {
  const Failure failure = failure_of([&] { parse_json(text, "a.json", limits); });
  EXPECT_EQ(failure.code, ExitCode::kCorrupt) << text.substr(0, 100);
  return failure.message;
}

TEST(Json, ReadsEveryKindOfValueInOrder) {
  const std::string text =
      R"({"b":[1,-2,18446744073709551615,0.5,true,false,null],"a":{"é":"\u00e9\n","":{}},"c":[]})";
  EXPECT_EQ(parse_json(text, "a.json"), nlohmann::ordered_json::parse(text));
  EXPECT_EQ(parse_json(text, "a.json").dump(), nlohmann::ordered_json::parse(text).dump());
  EXPECT_EQ(parse_json(" 3 ", "a.json"), 3);
  EXPECT_EQ(parse_json("[-0, 0]", "a.json").dump(), "[-0.0,0]") << "no integer is -0";
}

TEST(Json, NamesFileLineAndColumn) {
  EXPECT_EQ(complaint_of("{\"a\": 1,\n  \"b\": x}"), "a.json: line 2, column 8: not JSON");
  EXPECT_EQ(complaint_of("{} {}"), "a.json: line 1, column 4: not JSON");
  EXPECT_EQ(complaint_of("{\"a\": [1,"),
            "a.json: line 1, column 9: not JSON: it ends within a value; the file is cut short");
  EXPECT_EQ(complaint_of(""), "a.json: line 1, column 0: not JSON");
}

TEST(Json, RefusesKeysThatOccurTwice) {
  EXPECT_EQ(complaint_of("{\"a\": 1,\n\"a\": 2}"),
            "a.json: line 2, column 3: the key \"a\" occurs twice");
  EXPECT_EQ(complaint_of(R"({"x": [{"a": 1}, {"a": 1, "\u0061": 2}]})"),
            "a.json: line 1, column 34: the key \"a\" occurs twice");
}

TEST(Json, RefusesTextThatIsNotUtf8) {
  for (const std::string text : {"\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\xff"}) {
    EXPECT_NE(complaint_of(text).find("is not UTF-8"), std::string::npos) << complaint_of(text);
  }
  EXPECT_EQ(complaint_of("{\n\"caf\xe9\": 1}"),
            "a.json: line 2, column 5: not JSON: the byte 0xe9 is not UTF-8");
  EXPECT_EQ(complaint_of("\xc3\xa9"), "a.json: line 1, column 1: not JSON");
  EXPECT_NE(complaint_of(R"("\ud800")").find("not JSON"), std::string::npos);
}

TEST(Json, RefusesANulAndWhateverFollows) {
  EXPECT_EQ(complaint_of(std::string("{\"a\":\n1}\0 {{{ \xff", 16)),
            "a.json: line 2, column 3: not JSON: a NUL byte");
  EXPECT_NE(complaint_of(std::string("1\0", 2)).find("a NUL byte"), std::string::npos);
  EXPECT_NE(complaint_of(std::string("\"a\0b\"", 5)).find("a NUL byte"), std::string::npos);
  EXPECT_EQ(parse_json(R"("\u0000")", "a.json"), std::string(1, '\0'));
}

TEST(Json, RefusesNumbersBeyondTheFiniteOnes) {
  EXPECT_EQ(complaint_of("[1e999]"), "a.json: line 1, column 7: a number beyond the finite ones");
  EXPECT_NE(complaint_of("[NaN]").find("not JSON"), std::string::npos);
}

TEST(Json, RefusesAnyDepthBeyondTheLimitWithoutUsingTheStack) {
  const JsonLimits limits{.bytes = 1 << 24};
  for (const std::string opening : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += opening;
    EXPECT_NE(complaint_of(text, limits).find("nested deeper than 32 levels"), std::string::npos);
  }
  EXPECT_EQ(parse_json("[[3]]", "a.json", {.depth = 2}).dump(), "[[3]]");
  EXPECT_EQ(complaint_of("[[[3]]]", {.depth = 2}),
            "a.json: line 1, column 3: nested deeper than 2 levels");
}

TEST(Json, RefusesMoreBytesAndValuesThanAllowed) {
  EXPECT_EQ(complaint_of("[1,2,3]", {.bytes = 6}), "a.json: 7 bytes, where at most 6 are allowed");
  EXPECT_EQ(complaint_of("[1,2,3]", {.values = 3}), "a.json: line 1, column 7: more than 3 values");
  EXPECT_EQ(parse_json("[1,2,3]", "a.json", {.values = 4}).size(), 3);
}

TEST(Json, ALineOfALogIsAValueOrNothing) {
  EXPECT_EQ(try_parse_json(R"({"step": 3})")->at("step"), 3);
  EXPECT_FALSE(try_parse_json(R"({"step": 3)"));
  EXPECT_FALSE(try_parse_json(std::string(100'000, '[')));
}

TEST(Json, AgreesWithTheLibraryOnRandomTexts) {
  constexpr std::array<std::string_view, 20> kPieces{
      "{", "}",  "[",  "]",    ",",    ":",       "\"a\"",        "\"b\"", "1",   "-0.5",
      " ", "\n", "1e", "true", "fals", "\"\\u12", "\"\xc3\xa9\"", "\xff",  "nul", "\"\\n\""};
  const RandomStream random({.seed = 5}, 0);
  int good = 0;
  for (std::uint32_t trial = 0; trial < 20'000; ++trial) {
    std::string text;
    const auto length = random.block(trial)[0] % 9;
    for (std::uint32_t i = 0; i < length; ++i) {
      text += kPieces[random.block(trial, 1 + i)[1] % kPieces.size()];
    }
    const auto theirs = nlohmann::ordered_json::parse(text, nullptr, false);
    const auto ours = try_parse_json(text);
    if (ours) {
      ++good;
      EXPECT_EQ(ours->dump(), theirs.dump()) << text;
    } else {
      const bool twice = complaint_of(text).find("twice") != std::string::npos;
      EXPECT_TRUE(theirs.is_discarded() || twice) << text;
    }
  }
  EXPECT_GT(good, 500);
}

std::string refusal(const std::function<void(const JsonView&)>& use) {
  const auto value = nlohmann::ordered_json::parse(
      R"({"n": 3, "big": 18446744073709551615, "f": 1e300, "b": true, "s": "x", "o": {"l": [1, "2"]}})");
  const Failure failure = failure_of([&] { use(JsonView(value, "a.json")); });
  EXPECT_EQ(failure.code == ExitCode::kOk, failure.message == "no error");
  return failure.message;
}

TEST(JsonView, GivesValuesOfTheTypeThatIsAskedFor) {
  EXPECT_EQ(refusal([](const JsonView& v) {
              EXPECT_EQ(v.at("n").integer(), 3);
              EXPECT_EQ(v.at("n").number(), 3.0);
              EXPECT_EQ(v.at("f").number(), 1e300);
              EXPECT_EQ(v.at("s").string(), "x");
              EXPECT_EQ(v.at("o").at("l").size(), 2);
              EXPECT_TRUE(v.contains("n"));
              EXPECT_FALSE(v.at("n").contains("n"));
            }),
            "no error");
}

TEST(JsonView, NamesFileAndPlaceOfWhatIsWrong) {
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("x"); }), "a.json: x is missing");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("o").at("x"); }), "a.json: o.x is missing");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("n").at("x"); }),
            "a.json: n must be an object, got 3");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("o").at("l").integers(); }),
            "a.json: o.l[1] must be a whole number, got \"2\"");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("o").at("l").at(2); }),
            "a.json: o.l must be a list of more than 2 values, got [1,\"2\"]");
}

TEST(JsonView, NeverTurnsAValueIntoAnother) {
  const std::string want = " must be a whole number, got ";
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("f").integer(); }), "a.json: f" + want + "1e+300");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("b").integer(); }), "a.json: b" + want + "true");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("big").integer(); }),
            "a.json: big" + want + "18446744073709551615");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("n").integer(0, 2); }),
            "a.json: n must be a whole number from 0 to 2, got 3");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("n").integer(4); }),
            "a.json: n must be a whole number of at least 4, got 3");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("n").string(); }),
            "a.json: n must be a string, got 3");
  EXPECT_EQ(refusal([](const JsonView& v) { v.at("b").number(); }),
            "a.json: b must be a number, got true");
}

TEST(SafeText, ShowsTextShortAndWithoutControlCharacters) {
  EXPECT_EQ(shown("a\x1b[31m\"\xff\xc3\xa9"), "\"a\\u001b[31m\\\"\\ufffd\\u00e9\"");
  EXPECT_EQ(shown(std::string(101, 'a')), "\"" + std::string(100, 'a') + "\"...");
}

TEST(SafeText, KnowsUtf8) {
  for (const std::string_view good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf",
                                      "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "a\xc2\x80z"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const std::string_view bad :
       {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe9z"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(SafeText, IsNotObeyedByATerminal) {
  EXPECT_EQ(printable("a\tb\nc \u00e9\u4e2d"), "a\tb\nc \u00e9\u4e2d");
  EXPECT_EQ(printable("\x1b[31m\x1b]0;title\x07\r\x7f"), "\\x1b[31m\\x1b]0;title\\x07\\x0d\\x7f");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "2J\xc2\xa0"),
            "a\\xc2\\x9b"
            "2J\xc2\xa0");
  EXPECT_EQ(printable("\xff\x9b\xe4\xb8"), "\\xff\\x9b\\xe4\\xb8");
  EXPECT_EQ(printable(""), "");
}

}  // namespace
}  // namespace performer
