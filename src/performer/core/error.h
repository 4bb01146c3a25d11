#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace performer {

/// How the program ends. The table is part of the command line's contract.
enum class ExitCode : std::uint8_t {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,        // wrong flags or recipe
  kBadInput = 3,     // a file of the user that cannot be used
  kCorrupt = 4,      // a file of ours that fails verification
  kNoSpace = 5,      // disk full or not writable
  kOutOfMemory = 6,  // host or device
  kDiverged = 7,     // training left the finite numbers
  kPeerLost = 8,     // another rank went away
  kPreempted = 9,    // stopped by a signal, state saved
};

/// A failure that the user can act on: one line, `where: problem; what to do`.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace performer
