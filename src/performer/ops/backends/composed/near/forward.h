#pragma once

#include "performer/ops/backends/composed/forward.h"

namespace performer::composed {

/// The forward pass of one dense call with a near field.
void near_forward(const FavorArgs& args, const ForwardOutputs& outputs);

}  // namespace performer::composed
