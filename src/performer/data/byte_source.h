#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace performer::data {

/// Bytes of a file, a pipe or standard input (`-`), unpacked where they begin as gzip does: by
/// content, not by name. Reads piece by piece, in constant memory.
class ByteSource {
 public:
  /// kBadInput where the file cannot be opened or is a folder.
  explicit ByteSource(std::string path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// The next piece, empty at the end; valid until the next call. kBadInput for gzip data that is
  /// cut short or damaged, and where the system fails to read.
  std::span<const char> next();

  /// As given, or `<standard input>`.
  const std::string& name() const { return name_; }

 private:
  struct Inflater;
  std::span<const char> next_raw();
  std::span<const char> next_inflated();

  std::string name_;
  int file_ = -1;
  bool begun_ = false;
  std::int64_t raw_bytes_ = 0;
  std::unique_ptr<char[]> raw_;
  std::span<const char> pending_;
  std::unique_ptr<Inflater> inflater_;
};

/// All bytes; kBadInput above `max_bytes`.
std::string read_all(const std::string& path, std::int64_t max_bytes);

}  // namespace performer::data
