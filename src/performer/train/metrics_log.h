#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "performer/core/append_file.h"

namespace performer::train {

/// The keys of a record that tell the clock, and the check over them: the only ones that differ
/// between two equal runs.
inline constexpr std::array<std::string_view, 4> kTimeKeys{"time", "seconds", "tokens_per_second",
                                                           "crc32c"};

/// RUN/metrics.jsonl: one JSON object per line, "step" first and "crc32c" of the others' text last,
/// flushed line by line. A line that cannot be written is lost with a warning; the run goes on.
class MetricsLog {
 public:
  /// Continues an older file after its lines of steps up to `last_step`: newer ones and a last line
  /// cut short are removed. -1 removes all. Lines that do not match their check are told to `warn`;
  /// they stay unless they claim to be newer, and cost no other line.
  MetricsLog(const std::filesystem::path& path, std::int64_t last_step,
             const AppendFile::Warn& warn);

  void append(const nlohmann::ordered_json& record);

  /// Removes the lines after those of `step`, for a run that goes back to a checkpoint.
  void cut_after(std::int64_t step);

  /// "seconds" of the last line of training that was there at the start: how long the run had
  /// taken; 0 where there was none.
  double seconds() const { return seconds_; }

  /// Lines that the file holds.
  std::int64_t num_lines() const { return num_lines_; }
  std::int64_t num_lost() const { return file_.num_lost(); }

 private:
  AppendFile file_;
  double seconds_ = 0;
  std::int64_t num_lines_ = 0;
};

}  // namespace performer::train
