#pragma once

#include <cstdint>

#include "performer/models/model_config.h"

namespace performer::models {

/// Most tokens of a sequence that a model of `config` can read: learned positions and Linformer's
/// projections end at max_length; 0: there is no end.
std::int64_t length_limit(const ModelConfig& config);

}  // namespace performer::models
