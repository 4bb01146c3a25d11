#pragma once

#include <string>
#include <string_view>

namespace performer {

/// Throws Error (kUsage) for TOML that the parser is not safe with: values or keys nested deeper
/// than any recipe's (parsing them, and freeing the tables, is recursive and would exhaust the
/// stack), letters outside ASCII elsewhere than in strings and comments (its tables take some of
/// them for impossible), and quotes and brackets inside of bare words, behind which it sees none of
/// their strings. To be called before the parser; what else is wrong is left to it.
void guard_toml(std::string_view text, const std::string& source);

}  // namespace performer
