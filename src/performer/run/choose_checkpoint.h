#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "performer/run/checkpoint.h"

namespace performer::run {

/// The checkpoint that a user means, and how it was found.
struct ChosenCheckpoint {
  Checkpoint checkpoint;
  std::string name;  // best, latest, step; empty: the folder itself was named
  std::optional<std::int64_t> latest_step;  // of the run, where the choice is an older one

  /// One line: which one, of which step, and whether the run has a later one.
  std::string text() const;
};

/// `path` is a checkpoint folder or a run folder. Of a run, `which` is taken: `best`, `latest`, the
/// number of a step, or empty: the best one where validation has named it, else the latest.
/// kBadInput where there is none, kCorrupt naming the file where it does not verify: no other one
/// is taken in its place. kUsage for another word, or a choice where `path` is a checkpoint itself.
ChosenCheckpoint choose_checkpoint(const std::filesystem::path& path, const std::string& which);

/// choose_checkpoint with no choice made.
Checkpoint resolve_checkpoint(const std::filesystem::path& path);

}  // namespace performer::run
