#pragma once

#include "performer/ops/backends/composed/backward.h"
#include "performer/ops/backends/composed/dense_call.h"

namespace performer::composed {

/// The gradient that comes in through the final state: dS = [grad kv, grad normalizer]
/// 2^-log2_scale.
ScaledSum final_gradient(const DenseCall& p, const BackwardInputs& in);

/// Writes the gradient of the initial state: `grad` of all rows and of the final state, `passed`
/// that of the final state alone.
void write_state_gradient(const DenseCall& p, const BackwardOutputs& outputs, const ScaledSum& grad,
                          const ScaledSum& passed);

}  // namespace performer::composed
