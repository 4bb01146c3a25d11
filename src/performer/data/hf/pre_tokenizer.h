#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "performer/data/hf/split_pattern.h"

namespace performer::data::hf {

/// White space goes, and each punctuation mark is a word.
struct BertSplit {};
/// White space goes, and U+001C to U+001F too where Python's str.split() did it.
struct SpaceSplit {
  bool separators = false;
};
/// By a regular expression.
struct PatternSplit {
  SplitPattern pattern;
};
/// Numbers apart from all else, one by one or in runs.
struct DigitSplit {
  bool each = false;
};
/// Bytes become letters (byte_letters.h), a space before the text if it has none.
struct ByteLevel {
  bool prefix_space = false;
  bool split = true;  // by GPT-2's pattern, before
};
/// Spaces become `letter`, one stands before the text, and words begin with it.
struct Metaspace {
  enum class Before : std::uint8_t { kAlways, kFirst, kNever };  // first: of the whole text
  std::string letter;
  Before before = Before::kAlways;
  bool split = true;
};

using PreTokenizerStep =
    std::variant<BertSplit, SpaceSplit, PatternSplit, DigitSplit, ByteLevel, Metaspace>;

/// Splits a text into words, each step splitting those of the step before. Holds one word at a time.
class PreTokenizer {
 public:
  using Take = std::function<void(std::string_view word)>;

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  /// `at_start`: nothing stands before `text`.
  void split(std::string_view text, bool at_start, const Take& take) const;

 private:
  struct Piece {
    std::string_view text;
    bool at_start;
  };
  class Steps;

  std::vector<PreTokenizerStep> steps_;
};

}  // namespace performer::data::hf
