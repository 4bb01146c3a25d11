#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "performer/data/batch_stream.h"
#include "performer/data/prefetch.h"
#include "performer/models/transformer.h"
#include "performer/run/checkpoint_store.h"
#include "performer/run/progress.h"
#include "performer/run/recipe.h"
#include "performer/train/reporter.h"
#include "performer/train/spike_guard.h"
#include "performer/train/stop_signal.h"
#include "performer/train/training_step.h"

namespace performer::train {

struct TrainerOptions {
  std::filesystem::path out;
  at::Device device = at::kCPU;
  std::int64_t overfit = 0;           // > 0: the first so many batches again and again
  bool restart = false;               // forget what an earlier run left in the folder
  bool new_data = false;              // an earlier run may go on though the data have changed
  std::set<std::string> changes{};    // keys in which the recipe may differ from an earlier run's
  std::string recipe = "the recipe";  // its file, in errors
  std::string init{};                 // run or checkpoint whose weights the first step starts from
};

enum class Outcome : std::uint8_t {
  kFinished,
  kAlreadyFinished,
  kEarlyStop,
  kTimeLimit,
  kPreempted
};

/// One training run in one folder. Every step is a function of (recipe, step): the order of rows,
/// dropout, redraws and metric lines do not depend on interruptions.
class Trainer {
 public:
  Trainer(const run::Recipe& recipe, const TrainerOptions& options);
  ~Trainer();

  /// From the newest good checkpoint of the folder, if there is one, to the end.
  Outcome run();

  const run::Progress& progress() const { return progress_; }
  models::Transformer model() { return model_; }

 private:
  void restore();
  void begin();
  void check_same_init(const std::string& place) const;
  void resume_from(const run::Checkpoint& checkpoint);
  void go_on_before(const run::Checkpoint& unusable, const std::string& why);
  void check_same_data(const std::string& place, std::vector<run::Change>& changes);
  void load(const run::Checkpoint& checkpoint);
  void prune_again();
  data::BatchStream training_rows() const;
  std::map<std::string, run::DataIdentity> identify_data() const;
  std::int64_t wrapped(std::int64_t position) const;  // by --overfit
  void start_prefetch();
  void redraw_for(std::int64_t step);
  void take_step(std::int64_t step);
  void settle();  // waits for the report of the last step and acts on it
  void judge(const StepReport& report);
  void warn_of(const StepReport& report);
  /// Why the weights must not be kept; nothing where they may.
  std::optional<std::string> unsound();
  /// Goes back to the last checkpoint that was followed by a step, and throws kDiverged.
  [[noreturn]] void diverge(const std::string& why);
  void forget_earlier_run();
  /// True where a checkpoint was loaded.
  bool roll_back(const StepReport& report);
  void go_back_to(const run::Checkpoint& checkpoint);
  void validate();
  void show_samples();
  bool try_to_write(const char* what, const std::function<void()>& write);
  void mark_best();
  struct Saving {
    bool regular = false;  // by the recipe alone, not by a signal or a clock: for rollbacks
    bool last = false;     // the run ends with it
  };
  /// False where the weights are not sound: then nothing is written.
  bool save(const Saving& saving);
  run::CheckpointContent content() const;
  std::optional<Outcome> reason_to_stop(const StopSignal& signal) const;
  bool patience_is_over() const;
  bool due(std::int64_t every) const;

  TrainerOptions options_;
  std::shared_ptr<const data::Dataset> train_data_;
  std::optional<data::BatchStream> valid_rows_;
  run::Recipe recipe_;
  std::map<std::string, std::string> token_files_;
  run::CheckpointStore store_;  // after the data: a run that cannot begin leaves no folder
  models::Transformer model_;
  TrainingStep step_;
  Reporter reporter_;
  SpikeGuard guard_;
  run::Progress progress_;
  std::unique_ptr<data::Prefetcher> batches_;
  std::optional<PendingReport> pending_;
  std::optional<StepReport> spike_;  // seen, to be rolled back
  std::int64_t saved_step_ = -1;
  std::int64_t proven_step_ = -1;  // saved, and a later step was taken from it
  std::int64_t not_finite_ = 0;    // steps in a row, up to the last one
  std::string unsound_;            // why the last save was refused; empty: it was not
  std::int64_t refusals_ = 0;      // of saves, in a row
  bool regular_owed_ = false;      // a regular checkpoint is due since then
  std::chrono::steady_clock::time_point started_;
};

}  // namespace performer::train
