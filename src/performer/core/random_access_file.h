#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "performer/core/file.h"

namespace performer {

/// A regular file read at any place, from many threads at once. It may be cut short or become
/// unreadable meanwhile: that is an Error here, where a mapped file would end the program.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const std::filesystem::path& path);

  /// When it was opened.
  std::int64_t size() const { return file_.size; }

  /// Fills `out`; kCorrupt where the file ends before, kBadInput where the system fails to read.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  RegularFile file_;
};

}  // namespace performer
