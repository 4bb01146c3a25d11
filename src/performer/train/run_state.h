#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "performer/core/json.h"
#include "performer/data/token_space.h"
#include "performer/models/transformer.h"
#include "performer/train/data_identity.h"
#include "performer/train/recipe.h"
#include "performer/train/same_run.h"
#include "performer/train/tensor_file.h"

namespace performer::train {

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
  std::map<std::string, DataIdentity> data;  // of the splits that were opened: train, valid
  std::vector<Change> changes;               // of the recipe, on the way
};

/// Vocabulary and number of classes follow from the data; a recipe that names others is refused.
Recipe fitted_to(Recipe recipe, const data::TokenSpace& space);

models::Transformer make_model(const Recipe& recipe, at::Device device);

/// All that a model's file holds: masters by name, then buffers.
NamedTensors model_tensors(const models::Transformer& model, const NamedTensors& masters);

/// Tokens that have no written form: all specials but EOS, which ends a sequence.
std::vector<std::int64_t> never_generated(const data::TokenSpace& space);

/// The files of a checkpoint that hold the meaning of tokens: name -> bytes. kBadInput for classes
/// that they cannot hold.
std::map<std::string, std::string> tokenizer_files(const data::TokenSpace& space);
/// tokenizer.json of `folder`; kCorrupt beyond the limits of such a file.
nlohmann::ordered_json parse_tokenizer_json(const std::string& text, const std::string& folder);
data::TokenSpace tokenizer_from_files(const std::map<std::string, std::string>& files,
                                      const std::string& folder);

std::string progress_to_json(const Progress& progress, const nlohmann::ordered_json& parts);
/// Of the checkpoint of that step; kCorrupt for what no run writes.
Progress progress_from_json(const JsonView& json, std::int64_t step);

}  // namespace performer::train
