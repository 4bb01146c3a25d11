#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "performer/data/targets.h"

namespace performer::data {

/// Rows of a step, on the CPU.
struct Batch {
  at::Tensor tokens;      // int64 [B, L]
  at::Tensor targets;     // int64 [B, L], kIgnore where there is no loss; classes: [B]
  at::Tensor key_mask;    // bool [B, L], true = a real token; undefined: all real, or causal rows,
                          // whose padding comes last and is seen by no real token
  at::Tensor tokens_b;    // match: the second document, int64 [B, L']
  at::Tensor key_mask_b;  // as key_mask
  std::int64_t num_targets = 0;
  std::int64_t num_tokens = 0;  // real ones
  std::vector<std::int64_t> samples;
};

}  // namespace performer::data
