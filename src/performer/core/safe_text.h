#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace performer {

/// Text from a file as a message may show it: in quotes, short, without control characters that a
/// terminal would obey and without bytes that are not UTF-8.
std::string shown(std::string_view text);

/// Text as a terminal may show it: line feeds and tabs as they are, other control characters (what
/// a byte model may make is obeyed like any program's) and bytes that are not UTF-8 as \xNN.
std::string printable(std::string_view text);

/// The beginning of a long text of whole letters, for a message.
std::string shortened(const std::string& text);

/// Bytes at the beginning that are well-formed UTF-8: all, or those before the first wrong one.
std::size_t utf8_prefix(std::string_view text);

inline bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

}  // namespace performer
