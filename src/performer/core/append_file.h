#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "performer/core/file.h"

namespace performer {

/// A log that grows record by record and never holds part of one: a record that does not fit on the
/// disk is left out, the caller told once, and the next one tried again. Losing lines of a log is
/// no reason to stop a run of days.
class AppendFile {
 public:
  using Warn = std::function<void(const std::string& problem)>;

  /// Opens or makes the file; kNoSpace where that is not possible, as where a pipe has its name.
  AppendFile(std::filesystem::path path, Warn warn);

  /// False where the record was left out.
  bool append(std::string_view record);
  /// Cuts the file to its first `size` bytes, durably.
  void cut(std::int64_t size);

  std::int64_t size() const { return size_; }
  std::int64_t num_lost() const { return num_lost_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Warn warn_;
  FileDescriptor file_;
  std::int64_t size_ = 0;
  std::int64_t num_lost_ = 0;
  bool failing_ = false;
};

}  // namespace performer
