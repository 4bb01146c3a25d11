#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/run/recipe.h"

namespace performer::train {

struct StepBench {
  double step_ms = 0;    // median
  double spread_ms = 0;  // between the first and the third quarter
  double tokens_per_second = 0;
  double memory_mib = 0;  // peak: of the device's allocator, or of the process on the CPU
  std::int64_t parameters = 0;
};

/// Times whole training steps (forward, backward, clipping, update) of a recipe's model on random
/// tokens: batch x data.length of them, all of them targets.
StepBench bench_step(const run::Recipe& recipe, at::Device device, std::int64_t steps);

}  // namespace performer::train
