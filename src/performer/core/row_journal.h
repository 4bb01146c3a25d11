#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/core/file.h"

namespace performer {

/// Rows of numbers that a command makes in any order, on disk while it runs, so that one that was
/// killed goes on where it was. A record is the row's number, its numbers and their CRC-32C; what
/// was cut short or damaged is made again. One program at a time.
class RowJournal {
 public:
  /// `identity` says, key by key, what the rows are of. A journal that is there must be of the same:
  /// else kUsage, with what differs, or anew where `restart` is set.
  RowJournal(std::filesystem::path path, const nlohmann::ordered_json& identity, std::int64_t rows,
             bool restart);

  bool has(std::int64_t row) const { return places_[static_cast<std::size_t>(row)].begin >= 0; }
  std::int64_t done() const { return done_; }
  /// Numbers of a row that is there.
  std::int64_t count(std::int64_t row) const {
    return places_[static_cast<std::size_t>(row)].count;
  }

  void add(std::int64_t row, std::span<const float> numbers);
  /// Of a row that is there.
  std::vector<float> read(std::int64_t row) const;

  /// Takes the file away: its rows are where they belong.
  void remove();

 private:
  struct Place {
    std::int64_t begin = -1, count = 0;
  };
  void open_locked();
  void begin_anew(const std::string& head);
  void take_up(const nlohmann::ordered_json& identity, const std::string& head, std::int64_t size);
  void scan(std::int64_t at, std::int64_t size);
  void write(std::string_view bytes);

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<Place> places_;
  std::int64_t done_ = 0, end_ = 0;
};

}  // namespace performer
