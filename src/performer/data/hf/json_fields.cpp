#include "performer/data/hf/json_fields.h"

#include <nlohmann/json.hpp>

#include "performer/data/hf/unicode.h"

namespace performer::data::hf {

bool has(const JsonView& object, std::string_view key) {
  return object.contains(key) && !object.at(key).value().is_null();
}

bool flag_of(const JsonView& object, std::string_view key, bool otherwise) {
  return has(object, key) ? object.at(key).boolean() : otherwise;
}

std::string text_of(const JsonView& object, std::string_view key, const std::string& otherwise) {
  return has(object, key) ? object.at(key).string() : otherwise;
}

const std::string& read_pattern(const JsonView& json) {
  const JsonView pattern = json.at("pattern");
  if (!pattern.contains("String")) pattern.refuse("a String (expressions are not supported here)");
  const std::string& text = pattern.at("String").string();
  if (text.empty()) pattern.refuse("a String that is not empty");
  return text;
}

char32_t letter_of(const JsonView& text) {
  const std::string& letters = text.string();
  if (letters.empty()) text.refuse("one character");
  std::size_t end = 0;
  const char32_t letter = next_letter(letters, end);
  if (end != letters.size()) text.refuse("one character");
  return letter;
}

}  // namespace performer::data::hf
