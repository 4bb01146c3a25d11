#pragma once

#include "performer/ops/favor/state.h"

namespace performer {

/// The sums of a state, as operators take them.
struct StateTensors {
  const Tensor &kv, &normalizer, &log2_scale;
};

/// The rules that make three tensors a state; `which` opens each name in messages.
void check_state_tensors(const char* op, const char* which, const StateTensors& state);

}  // namespace performer
