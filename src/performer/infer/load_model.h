#pragma once

#include <memory>
#include <string>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/models/transformer.h"
#include "performer/run/recipe.h"

namespace performer::infer {

/// A trained model with all that is needed to use it.
struct LoadedModel {
  run::Recipe recipe;
  models::Transformer model{nullptr};
  data::TokenSpace space;
  std::vector<std::int64_t> ends;  // tokens that end what it generates
  std::int64_t step = 0;
  std::string folder;  // of the checkpoint
  std::string choice;  // one line: which checkpoint this is, and how it was chosen
};

/// Which checkpoint, and how its model is held.
struct LoadOptions {
  std::string checkpoint;  // of a run: best, latest or a step; empty: the best, else the latest
  at::Device device = at::kCPU;
  at::ScalarType precision = at::kFloat;
  std::vector<std::string> attention;  // another one for the same weights (other_attention.h)
};

/// From a checkpoint folder or a run folder. Every byte is verified first; a damaged file is an
/// Error (kCorrupt) that names it, and so is a weight that is not finite.
LoadedModel load_model(const std::string& path, const LoadOptions& options);

}  // namespace performer::infer
