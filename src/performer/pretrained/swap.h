#pragma once

#include "performer/models/transformer.h"
#include "performer/pretrained/convert.h"
#include "performer/run/checkpoint_writer.h"
#include "performer/run/recipe.h"

/// What every conversion does, wherever its weights came from.
namespace performer::pretrained {

/// Gives `model` the attention that is asked for, in place of what it has. A scale of q.k stays: it
/// belongs to the weights. kUsage for layers that it does not have.
void choose_attention(const ConvertOptions& options, models::ModelConfig& model);

/// The checkpoint of a model that has taken no step.
run::CheckpointContent content_of(const models::Transformer& model, const run::Recipe& recipe);

}  // namespace performer::pretrained
