#include "performer/models/random_projection.h"

#include "performer/ops/projection/projection.h"

namespace performer::models {

at::Tensor draw_for(const AttentionConfig& config, const ProjectionPlace& place,
                    std::int64_t draw) {
  ProjectionOptions options;
  options.kind = parse_projection_kind(config.projection);
  options.norm = parse_projection_norm(config.projection_norm);
  options.rounding = parse_projection_rounding(config.rounding);
  if (config.per_head) options.heads = place.heads;
  options.seed = config.seed;
  options.layer = place.layer;
  options.draw = draw;
  return draw_projection(config.features, place.head_dim, options);
}

}  // namespace performer::models
