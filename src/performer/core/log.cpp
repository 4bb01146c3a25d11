#include "performer/core/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "performer/core/safe_text.h"

namespace performer {
namespace {

std::atomic<bool> progress_shown = false;  // by log_progress, to be cleared by the next line

void write_all(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

bool log_is_terminal() { return isatty(STDERR_FILENO) != 0; }

void log_line(std::string_view text) {
  const bool clear = progress_shown.exchange(false);
  write_all((clear ? "\r\033[K" : "") + printable(text) + "\n");
}

void log_progress(std::string_view text) {
  if (!log_is_terminal()) return;
  progress_shown = true;
  write_all("\r\033[K" + printable(text));
}

}  // namespace performer
