#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/models/model_config.h"

namespace performer::models {

/// Whose projection it is.
struct ProjectionPlace {
  std::int64_t heads, head_dim, layer;
};

/// The random projection that the config asks for: [heads, M, D], or [M, D] for all heads.
at::Tensor draw_for(const AttentionConfig& config, const ProjectionPlace& place, std::int64_t draw);

}  // namespace performer::models
