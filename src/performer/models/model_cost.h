#pragma once

#include <cstdint>

#include "performer/models/model_config.h"

namespace performer::models {

/// What a model takes, from its config alone.
struct ModelCost {
  std::int64_t parameters = 0;
  std::int64_t activation_bytes = 0;  // kept from the forward to the backward pass, estimated
  std::int64_t state_bytes = 0;       // of streams: `batch` sequences after `length` tokens
  double flops_per_token = 0;         // forward pass, a multiply-add counted as 2
};

/// Sequences at once, tokens of each, bytes of an activation.
struct CostShape {
  std::int64_t batch = 1, length = 1024, bytes_per_element = 4;
};

ModelCost estimate(const ModelConfig& config, const CostShape& shape);
ModelCost estimate(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                   std::int64_t bytes_per_element);

/// The length from which FAVOR+ attention with the config's features takes fewer operations than
/// exact attention.
std::int64_t break_even_length(const ModelConfig& config);

}  // namespace performer::models
