#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "performer/core/file.h"
#include "performer/data/pieces_frame.h"

namespace performer::data::pieces {

enum class Outcome : std::uint8_t {
  kDone,
  kRefused,  // SentencePiece does not do this with these data
  kLost,     // the process ended, or is no longer to be understood
};

/// What came back.
struct Reply {
  Outcome outcome = Outcome::kLost;
  std::string text;  // the answer where done, else why not
};

/// The program performer-pieces, running: found beside this library, and ended with this object.
/// One ask at a time.
class Process {
 public:
  /// kFailure where the program is missing or cannot be started.
  Process();
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Sends an ask and waits for its answer. kOutOfMemory where the process had too little, or was
  /// killed, as systems do that have too little.
  Reply ask(Ask ask, std::span<const std::byte> request);

  /// The same for an ask that text follows: the process takes nothing after it.
  Reply ask_with_text(Ask ask, std::span<const std::byte> request, std::string_view text);

 private:
  Reply receive();
  Reply lost();

  std::string program_;
  FileDescriptor socket_;
  pid_t pid_ = -1;
};

}  // namespace performer::data::pieces
