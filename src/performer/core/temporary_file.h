#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "performer/core/file.h"

namespace performer {

/// When a temporary file has a name: kLast, at the end alone, where the file system can make files
/// without one (Linux: O_TMPFILE), so that nothing is left of a program that was killed; kFirst, on
/// every file system: a hidden name, locked while its program lives.
enum class Naming : std::uint8_t { kLast, kFirst };

/// A new file beside `target`, which takes its place by publish(). Without that nothing is left.
/// Making one clears away what programs that were killed have left of the same target, and refuses
/// (kNoSpace) a target that is there and no file: a folder, a pipe, a device.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target, Naming naming = Naming::kLast);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// Another descriptor of the open file.
  FileDescriptor duplicate() const;

  /// Gives the file the target's name, replacing what had it; durable only after fsync_folder.
  void publish();

 private:
  void open_named();
  void link_named();

  std::filesystem::path target_;
  std::filesystem::path name_;  // empty: none
  FileDescriptor file_;
};

/// A file for reading and writing in the folder of `beside` that never has a name of its own.
FileDescriptor open_unnamed(const std::filesystem::path& beside);

}  // namespace performer
