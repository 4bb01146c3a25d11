#pragma once

#include <cstdint>
#include <string>

#include "performer/core/json.h"

/// Members of JSON objects that may be absent or null.
namespace performer::data::hf {

bool has(const JsonView& object, std::string_view key);
bool flag_of(const JsonView& object, std::string_view key, bool otherwise);
std::string text_of(const JsonView& object, std::string_view key, const std::string& otherwise);
/// The `pattern` of a Replace: a text that is not empty, and no expression.
const std::string& read_pattern(const JsonView& json);
/// The one letter of a text; refused where it has none or more.
char32_t letter_of(const JsonView& text);

}  // namespace performer::data::hf
