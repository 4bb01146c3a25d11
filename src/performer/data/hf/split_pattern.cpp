#include "performer/data/hf/split_pattern.h"

#include <array>

#include "performer/data/hf/unicode.h"

namespace performer::data::hf {
namespace {

struct Known {
  const char* name;
  const char* expression;
  SplitPattern pattern;
};

using Numbers = SplitPattern::Numbers;

constexpr Known kKnown[] = {
    {"GPT-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {}},
    {"GPT-2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {}},
    {"Llama 3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
     R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.gpt2 = false, .numbers = Numbers::kThree}},
    {"Qwen 2 and 3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
     R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.gpt2 = false, .numbers = Numbers::kOne}},
    {"Qwen 3.5",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
     R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.gpt2 = false, .numbers = Numbers::kOne, .marks = true}},
};

/// The alternatives of an expression, in their order. Each returns where it ends, or `begin_` where
/// it does not match.
class Scanner {
 public:
  Scanner(std::string_view text, std::size_t begin, const SplitPattern& pattern)
      : text_(text), begin_(begin), pattern_(pattern) {}

  std::size_t end() const {
    for (const auto alternative : {&Scanner::contraction, &Scanner::word, &Scanner::number,
                                   &Scanner::symbols, &Scanner::space}) {
      const std::size_t end = (this->*alternative)();
      if (end > begin_) return end;
    }
    return text_.size();  // the alternatives leave nothing out
  }

 private:
  enum class Kind : std::uint8_t { kWord, kNumber, kSpace, kSymbol };

  Kind kind_of(char32_t c) const {
    if (is_letter(c) || (pattern_.marks && is_mark(c))) return Kind::kWord;
    if (is_number(c)) return Kind::kNumber;
    return is_space(c) ? Kind::kSpace : Kind::kSymbol;
  }

  // Of letters of one kind from `at` on, `most` at most.
  std::size_t run(std::size_t at, Kind kind, std::size_t most = SIZE_MAX) const {
    for (; most > 0 && at < text_.size(); --most) {
      std::size_t next = at;
      if (kind_of(next_letter(text_, next)) != kind) break;
      at = next;
    }
    return at;
  }

  // Behind a space that may stand before a word.
  std::size_t behind_space() const { return text_[begin_] == ' ' ? begin_ + 1 : begin_; }

  std::size_t run_behind(std::size_t at, Kind kind) const {
    const std::size_t end = run(at, kind);
    return end > at ? end : begin_;
  }

  // '(s|t|re|ve|m|ll|d)
  std::size_t contraction() const {
    if (text_[begin_] != '\'') return begin_;
    constexpr std::array<std::string_view, 7> kEndings = {"s", "t", "re", "ve", "m", "ll", "d"};
    const auto rest = text_.substr(begin_ + 1);
    if (!pattern_.gpt2 && rest.starts_with("\u017F")) return begin_ + 3;  // the long s, any case
    for (const auto ending : kEndings) {
      if (starts(rest, ending)) return begin_ + 1 + ending.size();
    }
    return begin_;
  }

  bool starts(std::string_view text, std::string_view small) const {
    if (text.size() < small.size()) return false;
    for (std::size_t i = 0; i < small.size(); ++i) {
      const bool large = !pattern_.gpt2 && text[i] >= 'A' && text[i] <= 'Z';
      if ((large ? static_cast<char>(text[i] + ('a' - 'A')) : text[i]) != small[i]) return false;
    }
    return true;
  }

  std::size_t word() const {
    if (pattern_.gpt2) return run_behind(behind_space(), Kind::kWord);
    // One letter that is no line feed, letter or number may stand before the word.
    std::size_t at = begin_;
    const char32_t first = next_letter(text_, at);
    const bool before = first != '\r' && first != '\n' && !is_letter(first) && !is_number(first);
    if (before) {
      const std::size_t end = run(at, Kind::kWord);
      if (end > at) return end;
    }
    return run(begin_, Kind::kWord);
  }

  std::size_t number() const {
    switch (pattern_.numbers) {
      case Numbers::kRuns:
        return run_behind(behind_space(), Kind::kNumber);
      case Numbers::kOne:
        return run(begin_, Kind::kNumber, 1);
      case Numbers::kThree:
        return run(begin_, Kind::kNumber, 3);
    }
    return begin_;
  }

  std::size_t symbols() const {
    std::size_t end = run_behind(behind_space(), Kind::kSymbol);
    if (pattern_.gpt2 || end == begin_) return end;
    while (end < text_.size() && (text_[end] == '\r' || text_[end] == '\n')) ++end;
    return end;
  }

  // White space up to the last line feed in it, or else without the last letter where anything
  // follows, which that letter belongs to.
  std::size_t space() const {
    const std::size_t end = run(begin_, Kind::kSpace);
    if (!pattern_.gpt2) {
      const auto feed = text_.substr(begin_, end - begin_).find_last_of("\r\n");
      if (feed != std::string_view::npos) return begin_ + feed + 1;
    }
    if (end == text_.size() || end == begin_) return end;
    std::size_t last = end;
    previous_letter(text_, last);
    return last > begin_ ? last : end;
  }

  std::string_view text_;
  std::size_t begin_;
  const SplitPattern& pattern_;
};

}  // namespace

std::optional<SplitPattern> known_pattern(std::string_view expression) {
  for (const Known& known : kKnown) {
    if (expression == known.expression) return known.pattern;
  }
  return std::nullopt;
}

std::string known_patterns() {
  std::string names;
  const char* last = nullptr;
  for (const Known& known : kKnown) {
    if (last != nullptr && std::string_view(last) == known.name) continue;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
    last = known.name;
  }
  return names;
}

std::size_t word_end(std::string_view text, std::size_t begin, const SplitPattern& pattern) {
  return Scanner(text, begin, pattern).end();
}

}  // namespace performer::data::hf
