#pragma once

#include <cstdint>
#include <string>

#include "performer/data/dataset.h"
#include "performer/run/recipe.h"

namespace performer::train {

/// What a recipe would take, without training.
struct DryRun {
  std::int64_t parameters = 0;
  std::int64_t rows = 0, length = 0;
  std::int64_t weight_bytes = 0;      // weights, gradients, masters and optimizer
  std::int64_t activation_bytes = 0;  // kept for the backward pass of one batch, estimated
  double flops_per_token = 0;         // forward and backward
  std::int64_t break_even = 0;        // length from which FAVOR+ needs fewer operations than exact
  std::int64_t samples = 0;           // rows of an epoch
  double epochs = 0;

  std::string weight_text() const;  // "12.3 MiB"
  std::string activation_text() const;
  std::string to_text() const;
  std::string to_json() const;
};

/// Of a recipe that is fitted to its data.
DryRun plan_of(const run::Recipe& recipe, const data::Dataset& train);

/// Opens the training data and counts.
DryRun dry_run(run::Recipe recipe);

}  // namespace performer::train
