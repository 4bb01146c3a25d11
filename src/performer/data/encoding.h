#pragma once

#include <string>
#include <string_view>

namespace performer::data {

/// kBadInput, at `place` (`file:line`), where text is not UTF-8: it goes into checkpoints and JSON.
void check_utf8(std::string_view text, const std::string& place);

/// The same, with the line counted from the text's beginning.
void check_utf8_lines(std::string_view text, const std::string& file);

}  // namespace performer::data
