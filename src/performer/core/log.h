#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace performer {

/// Words for the person at the terminal go to standard error; results go to standard output.
/// They are shown as printable() has them. A progress line in place is cleared first, so that
/// nothing is written into it.
void log_line(std::string_view text);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line("warning: " + fmt::format(format, std::forward<Args>(args)...));
}

/// One line that replaces itself on a terminal; elsewhere nothing (callers write plain lines).
void log_progress(std::string_view text);
bool log_is_terminal();

}  // namespace performer
