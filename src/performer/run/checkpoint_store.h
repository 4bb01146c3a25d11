#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/run/checkpoint.h"
#include "performer/run/checkpoint_writer.h"

namespace performer::run {

struct PruneRule {
  std::int64_t keep_last = 3;     // the newest ones; at least 1
  std::int64_t keep_every = 0;    // and steps that are multiples of this; 0: none
  std::set<std::int64_t> also{};  // and these
};

/// The checkpoints of one run, for the one process that writes them:
///   RUN/checkpoints/step-000000100/{model.safetensors, ..., manifest.json}, RUN/latest, RUN/best.
/// A checkpoint is written into a temporary folder, made durable and renamed; `latest` follows. At
/// any moment of a kill the last saved one stays, and is what newest_good() returns.
class CheckpointStore {
 public:
  /// Makes the folders, locks the run against a second writer, removes what killed saves left.
  explicit CheckpointStore(std::filesystem::path run_folder);

  /// Removes all checkpoints and pointers, and nothing else: the run begins anew. Where something
  /// that no run makes has one of their names, it is named and nothing is removed.
  void clear();

  /// A `best` that does not verify, or that a kill has kept from being written, is set to `step`,
  /// or removed where there is none; what was wrong is reported.
  void mend_best(std::optional<std::int64_t> step,
                 const std::function<void(const Error&)>& rejected);

  /// Replaces an older checkpoint of that step. Where it fails (kNoSpace), its temporary files
  /// are gone, every older checkpoint and `latest` are as before, and a later save may succeed.
  void save(std::int64_t step, const CheckpointContent& content);

  /// `latest` if it verifies and its numbers are finite, else the newest of which that is true.
  /// Every one refused is reported to `rejected`. Nothing if the run has none; kCorrupt if it has
  /// some and none is good.
  std::optional<Checkpoint> newest_good(const std::function<void(const Error&)>& rejected) const;

  /// Lets `best` name the saved checkpoint of that step.
  void mark_best(std::int64_t step);

  /// Steps with a checkpoint, ascending, verified or not.
  std::vector<std::int64_t> steps() const;

  /// Removes old checkpoints, never those that `latest` and `best` name; returns their steps.
  /// kCorrupt, with nothing removed, where one of these two files is damaged.
  std::vector<std::int64_t> prune(const PruneRule& rule);

  /// The checkpoint of `step`, or where it is not good the newest good one before it.
  std::optional<Checkpoint> newest_good_up_to(
      std::int64_t step, const std::function<void(const Error&)>& rejected) const;

  /// Removes checkpoints newer than `step`, which a run that went back has left behind; `best`
  /// stays.
  void forget_after(std::int64_t step);

  /// The run goes on from this older checkpoint: `latest` names it, newer ones are removed.
  void go_back_to(const Checkpoint& checkpoint);

  /// Takes a saved checkpoint back, of which the steps after it have shown that it is of no use:
  /// `latest` names the newest good one before it, or is gone. Returns that one's step.
  std::optional<std::int64_t> take_back(std::int64_t step);

  const std::filesystem::path& run_folder() const { return run_; }

 private:
  std::filesystem::path temporary(std::int64_t step) const;
  void put_in_place(const std::filesystem::path& temporary, std::int64_t step);
  void remove(std::int64_t step);
  std::optional<std::int64_t> pointed_step(const char* pointer) const;

  std::filesystem::path run_;
  std::filesystem::path checkpoints_;
  FileDescriptor lock_;
};

}  // namespace performer::run
