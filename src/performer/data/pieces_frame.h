#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// What the library and the program performer-pieces say to each other over a socket. Both are of
/// one build, so numbers travel as they lie in memory.
///
/// SentencePiece lives in a process of its own: the system's library exports variables of the names
/// and not the sizes that torch's have (FLAGS_minloglevel), and beside torch it would write into
/// torch's memory. There a damaged model ends nothing but that process, too.
namespace performer::data::pieces {

constexpr const char* kProgram = "performer-pieces";
constexpr std::uint64_t kMaxFrame = std::uint64_t{1} << 34;

enum class Ask : std::uint64_t {
  kLoad,    // a model -> Facts
  kEncode,  // text -> tokens, int32 each
  kDecode,  // tokens, int32 each -> text
  kTrain,   // TrainSettings; text follows up to the end of the stream -> a model
};

enum class Answer : std::uint64_t {
  kDone,
  kRefused,  // why, as text
};

/// The exit status of a process that has too little memory, in whatever thread: a SentencePiece
/// that cannot allocate can be caught in one of them only.
constexpr int kNoMemory = 6;

struct FrameHead {
  std::uint64_t kind;  // Ask or Answer
  std::uint64_t bytes;
};

struct Facts {
  std::int64_t vocabulary, pad, bos, eos, mask;
};

struct TrainSettings {
  std::int64_t vocabulary, threads;
};

/// Writes all of `bytes`; false where the other side is gone.
inline bool send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

/// Fills `bytes`; false where the stream ends before.
inline bool receive_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::read(socket, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

template <class Kind>
bool write_frame(int socket, Kind kind, std::span<const std::byte> bytes) {
  const std::array head = {FrameHead{static_cast<std::uint64_t>(kind), bytes.size()}};
  return send_all(socket, std::as_bytes(std::span(head))) && send_all(socket, bytes);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace performer::data::pieces
