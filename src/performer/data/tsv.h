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
  /// Of a table of which something is held in memory for each row.
  static constexpr std::int64_t kMaxRows = std::int64_t{1} << 26;

  /// Of a table whose words are held as they are.
  static constexpr std::int64_t kMaxWords = std::int64_t{1} << 30;

  /// kBadInput where there is no header, and for the first row beyond `max_rows` of them or
  /// `max_bytes` unpacked.
  explicit TsvReader(const std::string& path, std::int64_t max_rows = INT64_MAX,
                     std::int64_t max_bytes = std::int64_t{1} << 40);

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
  std::int64_t max_rows_, rows_ = 0;
  std::span<const char> rest_;
  std::vector<std::string> columns_;
  std::int64_t line_ = 0;
};

}  // namespace performer::data
