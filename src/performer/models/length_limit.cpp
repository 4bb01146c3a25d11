#include "performer/models/length_limit.h"

namespace performer::models {

std::int64_t length_limit(const ModelConfig& config) {
  bool ends = config.positions == "learned";
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    ends = ends || config.kind_of(layer) == "linformer";
  }
  return ends ? config.max_length : 0;
}

}  // namespace performer::models
