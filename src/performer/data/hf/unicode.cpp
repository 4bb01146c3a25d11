#include "performer/data/hf/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "performer/data/hf/unicode_differences.h"

namespace performer::data::hf {
namespace {

constexpr char32_t kAscii = 0x80;

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool between(int value, int first, int last) { return value >= first && value <= last; }

bool all_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < kAscii; });
}

char32_t lower_letter(char32_t c) {
  for (const CaseRange& range : kLowerLater) {
    if (c >= range.first && c <= range.last) return c + static_cast<char32_t>(range.by);
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

// The class by which accents behind a letter are put in order; 0: stays where it is.
int order_of(char32_t c) {
  if (c < 0x300 || contains(kUnordered, c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void append_decomposed(std::vector<utf8proc_int32_t>& letters, char32_t c) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  std::array<utf8proc_int32_t, 8> parts{};  // at most 4 by Unicode's stability
  if (c < 0xC0 || c == kWholeLetter) {
    letters.push_back(static_cast<utf8proc_int32_t>(c));
    return;
  }
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                              static_cast<utf8proc_ssize_t>(parts.size()), kOptions, &boundary);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    letters.push_back(parts.at(static_cast<std::size_t>(i)));
  }
}

// utf8proc would sort by exchanging neighbours, in quadratic time.
void put_in_order(std::vector<utf8proc_int32_t>& letters) {
  const auto order = [](utf8proc_int32_t c) { return order_of(static_cast<char32_t>(c)); };
  for (auto begin = letters.begin(); begin != letters.end();) {
    begin = std::find_if(begin, letters.end(), [&](auto c) { return order(c) != 0; });
    const auto end = std::find_if(begin, letters.end(), [&](auto c) { return order(c) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return order(a) < order(b); });
    begin = end;
  }
}

// Part by part: what kUnordered holds is composed with nothing, nor what stands on its two sides.
std::vector<utf8proc_int32_t> composed(std::vector<utf8proc_int32_t> letters) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto ends = [](utf8proc_int32_t c) {
    return contains(kUnordered, static_cast<char32_t>(c));
  };
  auto to = letters.begin();
  for (auto begin = letters.begin(); begin != letters.end();) {
    const auto end = std::find_if(std::next(begin), letters.end(), ends);
    const auto left = utf8proc_normalize_utf32(std::to_address(begin), end - begin, kOptions);
    to = std::copy(begin, begin + left, to);
    begin = end;
  }
  letters.erase(to, letters.end());
  return letters;
}

}  // namespace

char32_t next_letter(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < kAscii) return first;
  const int follow = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t c = first & (0x3FU >> follow);
  for (int i = 0; i < follow; ++i) c = c << 6U | (static_cast<unsigned char>(text[at++]) & 0x3FU);
  return c;
}

char32_t previous_letter(std::string_view text, std::size_t& at) {
  const auto inside = [&] { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  do {
    --at;
  } while (inside());
  std::size_t again = at;
  return next_letter(text, again);
}

void append_letter(std::string& text, char32_t c) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < kAscii) return add(c);
  if (c < 0x800) {
    add(0xC0U | c >> 6U);
  } else {
    if (c < 0x10000) {
      add(0xE0U | c >> 12U);
    } else {
      add(0xF0U | c >> 18U);
      add(0x80U | (c >> 12U & 0x3FU));
    }
    add(0x80U | (c >> 6U & 0x3FU));
  }
  add(0x80U | (c & 0x3FU));
}

bool is_space(char32_t c) {
  if (c < kAscii) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || between(category(c), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_letter(char32_t c) {
  if (c < kAscii) return (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z';
  return between(category(c), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO) ||
         contains(kLettersLater, c);
}

bool is_number(char32_t c) {
  if (c < kAscii) return c >= '0' && c <= '9';
  return between(category(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) ||
         contains(kNumbersLater, c);
}

bool is_mark(char32_t c) {
  return c >= 0x300 && (between(category(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) ||
                        contains(kMarksLater, c));
}

bool is_digit(char32_t c) { return is_number(c) || contains(kDigitsLater, c); }

bool is_word(char32_t c) {
  // Letters with a circle or a square around them are symbols, yet alphabetic.
  constexpr Range kAlphabeticSymbols[] = {
      {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
  if (is_letter(c) || c == '_' || (c < kAscii && is_number(c))) return true;
  if (c < kAscii) return false;
  const int kind = category(c);
  return is_mark(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || contains(kNumbersLater, c) ||
         contains(kAlphabeticSymbols, c);
}

bool is_control(char32_t c) {
  if (c < kAscii) return c < ' ' || c == 0x7F;
  return between(category(c), UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO) &&
         !contains(kControlNotYet, c);
}

bool is_accent(char32_t c) {
  if (c < 0x300) return false;
  return (category(c) == UTF8PROC_CATEGORY_MN && !contains(kAccentsNotYet, c)) ||
         contains(kAccentsOnce, c);
}

bool is_punctuation(char32_t c) {
  if (c < kAscii) {
    return c > ' ' && c < 0x7F && !is_letter(c) && !is_number(c);
  }
  return (between(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) &&
          !contains(kPunctuationNotYet, c)) ||
         contains(kPunctuationOnce, c);
}

bool is_chinese(char32_t c) {
  // The gap from 2B820 to 2B91F is that of the package.
  constexpr Range kBlocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                               {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                               {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return c >= 0x3400 && contains(kBlocks, c);
}

std::string lower_case(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_letter(text, i);
    if (c < kAscii) {
      lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    } else if (c == 0x130) {
      lower += "i\u0307";  // the one letter that becomes two
    } else {
      append_letter(lower, lower_letter(c));
    }
  }
  return lower;
}

std::string normalized(std::string_view text, NormalForm form) {
  if (all_ascii(text)) return std::string(text);
  std::vector<utf8proc_int32_t> letters;
  letters.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) append_decomposed(letters, next_letter(text, i));
  put_in_order(letters);
  if (form == NormalForm::kComposed) letters = composed(std::move(letters));
  std::string result;
  result.reserve(text.size());
  for (const auto c : letters) append_letter(result, static_cast<char32_t>(c));
  return result;
}

}  // namespace performer::data::hf
