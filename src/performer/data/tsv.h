#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/byte_source.h"

namespace performer::data {

/// Rows of a tab-separated file [.gz] with a header line, one after the other. Fields write a line
/// feed as \n, a tab as \t and a backslash as \\.
class TsvReader {
 public:
  /// Of a table whose ids are held in memory.
  static constexpr std::int64_t kMaxIds = std::int64_t{1} << 30;

  /// kBadInput where there is no header, and as soon as more than `max_bytes` are unpacked.
  explicit TsvReader(const std::string& path, std::int64_t max_bytes = std::int64_t{1} << 40);

  /// The next row, with as many fields as the header; kBadInput with the line for another number.
  /// Empty lines are passed over.
  bool next(std::vector<std::string>& fields);

  /// Place of a column; -1 where there is none.
  std::int64_t find(std::string_view column) const;

  /// Place of a column; kBadInput, naming those that are there, where there is none.
  std::size_t at(std::string_view column) const;

  const std::string& name() const { return source_.name(); }
  std::int64_t line() const { return line_; }

 private:
  bool next_line(std::string& text);

  ByteSource source_;
  std::int64_t room_;  // bytes that may still come
  std::span<const char> rest_;
  std::vector<std::string> columns_;
  std::int64_t line_ = 0;
};

}  // namespace performer::data
