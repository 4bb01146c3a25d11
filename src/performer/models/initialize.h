#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "performer/models/model_config.h"

namespace performer::models {

/// Initial weights, a function of the seed, the config and the parameters' order alone: the same
/// bits on every machine. Matrices are normal with deviation 0.02, the ones that end a residual
/// branch 0.02 / sqrt(2 layers) (GPT-2), Linformer's 1 / sqrt(max_length); biases 0, norms 1.
void initialize(torch::nn::Module& model, const ModelConfig& config, std::uint64_t seed);

}  // namespace performer::models
