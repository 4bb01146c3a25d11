#pragma once

#include <memory>
#include <string>

#include "performer/data/token_space.h"
#include "performer/models/transformer.h"
#include "performer/train/recipe.h"

namespace performer::train {

/// A trained model with all that is needed to use it.
struct LoadedModel {
  Recipe recipe;
  models::Transformer model{nullptr};
  data::TokenSpace space;
  std::int64_t step = 0;
  std::string folder;  // of the checkpoint
};

/// From a checkpoint folder or a run folder (its best, else its latest checkpoint). Every byte is
/// verified first; a damaged file is an Error (kCorrupt) that names it.
LoadedModel load_model(const std::string& path, at::Device device, at::ScalarType precision);

}  // namespace performer::train
