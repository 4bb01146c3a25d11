#include "performer/core/toml_guard.h"

#include <algorithm>
#include <cstdint>

#include "performer/core/error.h"

namespace performer {
namespace {

constexpr int kMostBrackets = 32;  // open at once
constexpr int kMostParts = 16;     // of a dotted key

// The position after the string that begins at `start`, with its quotes; an open one ends with its
// line, or with the text if it has three quotes.
std::size_t end_of_string(std::string_view text, std::size_t start) {
  const char quote = text[start];
  const bool long_form = text.substr(start, 3) == std::string(3, quote);
  std::size_t i = start + (long_form ? 3 : 1);
  while (i < text.size()) {
    if (text[i] == '\\' && quote == '"') {
      i += 2;
    } else if (long_form && text.substr(i, 3) == std::string(3, quote)) {
      std::size_t end = i + 3;  // one or two quotes before the closing three belong to the text
      for (int extra = 0; extra < 2 && end < text.size() && text[end] == quote; ++extra) ++end;
      return end;
    } else if (!long_form && (text[i] == quote || text[i] == '\n')) {
      return i + 1;
    } else {
      ++i;
    }
  }
  return text.size();
}

bool ends_key(char c) { return c == '\n' || c == '=' || c == ',' || c == '[' || c == '{'; }

}  // namespace

void guard_toml(std::string_view text, const std::string& source) {
  int brackets = 0;
  int dots = 0;
  const auto refuse = [&](std::size_t i, std::string_view problem) {
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::int64_t>(i), '\n');
    fail(ExitCode::kUsage, "{}:{}: {}", source, line, problem);
  };
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '"' || c == '\'') {
      i = end_of_string(text, i);
      continue;
    }
    if (ends_key(c)) dots = 0;
    if (c == '.' && ++dots >= kMostParts) {
      refuse(i, fmt::format("a key of more than {} parts", kMostParts));
    }
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (brackets > kMostBrackets) {
      refuse(i, fmt::format("nested deeper than {} brackets", kMostBrackets));
    }
    ++i;
  }
}

}  // namespace performer
