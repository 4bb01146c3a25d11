#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace performer::data {

/// So many bytes show what a file is.
inline constexpr std::size_t kMarkBytes = 10;

inline constexpr std::string_view kGzipMark = "\x1f\x8b";

bool is_gzip(std::span<const char> begin);

/// Length of a UTF-8 byte order mark at the beginning: 3 or 0.
std::size_t byte_order_mark(std::span<const char> begin);

/// kBadInput, with what to do, where the data begin as a form does that is not read here.
void refuse_other_kinds(const std::string& name, std::span<const char> begin);

/// Whether a path gives its bytes only once: `-`, a named pipe, a process substitution, a terminal.
bool is_pipe(const std::string& path);

}  // namespace performer::data
