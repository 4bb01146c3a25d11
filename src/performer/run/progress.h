#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "performer/core/json.h"
#include "performer/run/checkpoint_manifest.h"
#include "performer/run/data_identity.h"
#include "performer/run/same_run.h"

namespace performer::run {

/// Where a run stands: all that a checkpoint must say beside tensors.
struct Progress {
  std::int64_t step = 0;         // steps done
  std::int64_t position = 0;     // rows taken from the endless order
  std::int64_t extra_draws = 0;  // redraws beyond the schedule, by rollbacks
  double best_loss = 0;
  std::int64_t best_step = 0;  // 0: no validation yet
  std::int64_t worse = 0;      // validations since the best
  std::int64_t overfit = 0;    // batches that are repeated; 0: a real run
  std::int64_t skipped = 0;    // steps in a row without effect
  std::int64_t regular = 0;    // step of the last checkpoint that rollbacks go to; 0: none
  std::int64_t rollbacks = 0;  // to that checkpoint
  std::string init;            // hash of the manifest its weights began with; empty: none
  std::map<std::string, DataIdentity> data;  // of the splits that were opened: train, valid
  std::vector<Change> changes;               // of the recipe, on the way
};

std::string progress_to_json(const Progress& progress, const nlohmann::ordered_json& parts);
/// Of the checkpoint of that step and version; kCorrupt for what no run writes.
Progress progress_from_json(const JsonView& json, std::int64_t step,
                            std::int64_t version = kCheckpointVersion);

}  // namespace performer::run
