#pragma once

#include "performer/ops/backends/composed/backward.h"

namespace performer::composed {

/// The gradients of one dense call with a near field. Rows are formed anew.
void near_backward(const FavorArgs& args, const BackwardInputs& inputs,
                   const BackwardOutputs& outputs);

}  // namespace performer::composed
