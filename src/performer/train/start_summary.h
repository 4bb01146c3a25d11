#pragma once

#include <cstdint>

#include "performer/data/batch_stream.h"
#include "performer/data/statistics.h"
#include "performer/models/transformer.h"
#include "performer/run/recipe.h"

namespace performer::train {

/// A run that is about to begin. `valid` may be null.
struct Start {
  const run::Recipe& recipe;  // fitted to the data
  const data::Dataset& train;
  const data::BatchStream* valid;
  models::Transformer model;
  at::Device device;
};

/// What guesses without a model reach on the training rows.
struct StartBaselines {
  data::Baselines apart;    // of the letters
  data::Baselines counted;  // with EOS among the targets, as in the loss
};

/// Tells the person at the terminal, a line each, what is trained on what: data, model, device and
/// kernel of the attention, memory, baselines. Runs one attention call, which leaves no trace.
StartBaselines log_start(const Start& start);

}  // namespace performer::train
