#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "performer/core/json.h"
#include "performer/infer/evaluate.h"
#include "performer/train/metrics_log.h"
#include "performer/train/start_summary.h"
#include "performer/train/tensorboard.h"
#include "performer/train/training_step.h"

namespace performer::train {

/// Tells a person and files how training goes: a line that replaces itself on a terminal, plain
/// lines elsewhere, metrics.jsonl, TensorBoard events.
class Reporter {
 public:
  Reporter(const std::filesystem::path& run_folder, const run::TrainConfig& config);

  /// Opens the files for a run that goes on after `step`; metric lines newer than that are dropped,
  /// since the run will write them again. Warns of lines that are no longer there.
  void start_after(std::int64_t step);
  /// What the progress is shown beside: the frequencies' perplexity, kept in the metrics of a run
  /// that begins.
  void set_baselines(const StartBaselines& baselines);
  /// Drops metric lines newer than `step`, for a run that goes back.
  void cut_after(std::int64_t step);
  void add(const StepReport& report);
  void add(std::int64_t step, const std::string& split, const infer::Evaluation& evaluation);
  /// One more line of metrics, for what happens seldom: {"step": 12, "event": "redraw", ...}.
  void event(const nlohmann::ordered_json& record);

  /// Sums since the last line: a resumed run writes the same lines as an uninterrupted one.
  nlohmann::ordered_json state() const;
  void load(const JsonView& state);

 private:
  struct Window {
    double loss_sum = 0, correct = 0;
    std::int64_t targets = 0, tokens = 0, skipped = 0;
  };
  void write_line(const StepReport& last);
  void scalar(const std::string& tag, std::int64_t step, double value);

  run::TrainConfig config_;
  std::filesystem::path folder_;
  std::optional<MetricsLog> metrics_;
  std::optional<EventWriter> events_;
  Window window_;
  std::int64_t tokens_ = 0;  // of the whole run
  std::chrono::steady_clock::time_point started_, window_started_;
  double earlier_seconds_ = 0;      // of the run, before this start
  std::int64_t earlier_lines_ = 0;  // of metrics, that the checkpoint has seen
  std::int64_t first_step_ = 0;
  std::int64_t steps_taken_ = 0;  // since this start, those that were gone back from too
  double frequencies_ = 0;        // perplexity of guesses by frequency; 0: not known
};

}  // namespace performer::train
