#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/models/model_config.h"

namespace performer::models {

/// Whose random matrix: that of (attention.seed, layer, draw).
struct MatrixKey {
  const AttentionConfig& config;
  std::int64_t layer, draw;
};

/// Standard normals, float32 [rows, columns] on the CPU; the same bits on every machine.
at::Tensor random_matrix(std::int64_t rows, std::int64_t columns, const MatrixKey& key);

}  // namespace performer::models
