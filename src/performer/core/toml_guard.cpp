#include "performer/core/toml_guard.h"

#include <algorithm>
#include <cstdint>

#include "performer/core/error.h"

namespace performer {
namespace {

constexpr std::size_t kMostBrackets = 32;  // open at once
constexpr int kMostParts = 16;             // of a dotted key

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

bool one_of(char c, std::string_view all) { return all.find(c) != std::string_view::npos; }

// Where a text stands between its strings and comments. As long as the parser has found nothing
// wrong it stands there too, so that both see the same strings; behind its first complaint it reads
// nothing.
struct Place {
  std::string open;    // brackets: [ of an array, { of a table, h of a header
  char before = '\n';  // the last character that is no blank; a line feed outside of brackets
  bool in_key = true;
  int dots = 0;  // of this key or number

  bool string_may_begin() const { return one_of(before, "=,[{\n") || (before == '.' && in_key); }
  bool bracket_may_open(char c) const { return one_of(before, c == '[' ? "=,[\n" : "=,["); }

  void pass(char c) {
    if (one_of(c, " \t\r") || (c == '\n' && one_of(open.empty() ? 'h' : open.back(), "[{"))) return;
    if (one_of(c, "\n=,[{")) dots = 0;
    if (c == '.') ++dots;
    if (c == '\n') open.clear();
    if (c == '[') open += before == '\n' || (before == '[' && open == "h") ? 'h' : '[';
    if (c == '{') open += c;
    if (one_of(c, "]}") && !open.empty()) open.pop_back();
    if (one_of(c, "\n=,[{]}")) in_key = c == '\n' || (one_of(c, ",[{") && in_table());
    before = c;
  }

 private:
  bool in_table() const { return !open.empty() && open.back() != '['; }
};

}  // namespace

void guard_toml(std::string_view text, const std::string& source) {
  Place place;
  const auto refuse = [&](std::size_t i, std::string_view problem) {
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::int64_t>(i), '\n');
    fail(ExitCode::kUsage, "{}:{}: {}", source, line, problem);
  };
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // of byte order
  for (std::size_t i = text.starts_with(kMark) ? kMark.size() : 0; i < text.size();) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '"' || c == '\'') {
      if (!place.string_may_begin()) refuse(i, "a quote where no string can begin");
      i = end_of_string(text, i);
      place.before = c;
      continue;
    }
    if (static_cast<signed char>(c) < 0) {
      refuse(i, "a letter outside ASCII, where only strings and comments may have one");
    }
    if ((c == '[' || c == '{') && !place.bracket_may_open(c)) {
      refuse(i, "a bracket where neither a list nor a table can begin");
    }
    place.pass(c);
    if (place.dots >= kMostParts) refuse(i, fmt::format("a key of more than {} parts", kMostParts));
    if (place.open.size() > kMostBrackets) {
      refuse(i, fmt::format("nested deeper than {} brackets", kMostBrackets));
    }
    ++i;
  }
}

}  // namespace performer
