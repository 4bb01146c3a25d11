#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace performer::data {

/// A byte order mark at the beginning of text is passed over.
enum class Content : std::uint8_t { kText, kBinary };

/// Bytes of a file, a pipe or standard input (`-`), unpacked where they begin as gzip does: by
/// content, not by name. Reads piece by piece, in constant memory, and opens and reads once.
class ByteSource {
 public:
  /// kBadInput where the file cannot be opened or is a folder.
  explicit ByteSource(std::string path, Content content = Content::kText);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// The next piece, empty at the end; valid until the next call. kBadInput for gzip data that is
  /// cut short or damaged, for forms that are not read here (zstd, bzip2, xz, zip, UTF-16), with
  /// what to do, and where the system fails to read. Members of gzip data may follow each other,
  /// and zeros the last one; anything else behind it is refused.
  std::span<const char> next();

  /// As given, or `<standard input>`.
  const std::string& name() const { return name_; }

 private:
  struct Inflater;
  std::span<const char> first();
  std::span<const char> next_raw(std::size_t least, std::size_t kept = 0);
  std::span<const char> next_inflated(std::size_t least);
  bool next_member();
  void inflate_pending(std::size_t& made);

  std::string name_;
  Content content_;
  int file_ = -1;
  bool pipe_ = false;
  bool begun_ = false;
  std::int64_t raw_bytes_ = 0;
  std::unique_ptr<char[]> raw_;
  std::span<const char> pending_;
  std::unique_ptr<Inflater> inflater_;
};

/// All bytes; kBadInput above `max_bytes`.
std::string read_all(const std::string& path, std::int64_t max_bytes,
                     Content content = Content::kText);

}  // namespace performer::data
