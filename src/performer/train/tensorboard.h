#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "performer/core/append_file.h"

namespace performer::train {

/// Scalars in the event files that TensorBoard reads: TFRecord frames around protocol buffers
/// (Event, Summary). Each start of a run makes a file of its own in the run's folder.
class EventWriter {
 public:
  struct Start {
    double wall_time = 0;  // seconds since 1970; part of the file's name
    std::int64_t first_step =
        0;  // of this start; values that older files have from there on are void
  };

  EventWriter(const std::filesystem::path& folder, const Start& start, AppendFile::Warn warn);

  /// Lost with a warning where it cannot be written.
  void scalar(std::string_view tag, std::int64_t step, double value, double wall_time);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace performer::train
