#pragma once

#include <string>
#include <string_view>

namespace performer {

/// Throws Error (kUsage) for TOML that nests values or keys deeper than any recipe does: parsing
/// them, and freeing the tables, is recursive and would exhaust the stack. To be called before the
/// parser; what else is wrong is left to it.
void guard_toml(std::string_view text, const std::string& source);

}  // namespace performer
