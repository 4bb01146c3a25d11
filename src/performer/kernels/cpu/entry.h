#pragma once

#include "performer/kernels/cpu/causal_segments.h"
#include "performer/kernels/cpu/kernels.h"
#include "performer/kernels/cpu/near/backward.h"
#include "performer/kernels/cpu/near/forward.h"
#include "performer/kernels/cpu/step.h"

// What an instruction set offers: included by the isa_*.cpp, each compiled with its own flags.
namespace performer::kernels::PERFORMER_ISA {

inline void forward(const FavorProblem& p, const ForwardOutputs& outputs,
                    const Executor& executor) {
  if (p.near > 0) return near_forward(p, outputs, executor);
  if (Step::serves(p)) return step_forward(p, outputs, executor);
  p.causal ? causal_forward(p, outputs, executor) : bidirectional_forward(p, outputs, executor);
}

inline bool backward(const FavorProblem& p, const BackwardInputs& in, const BackwardOutputs& out,
                     const Executor& executor) {
  if (p.near > 0) return near_backward(p, in, out, executor);
  return p.causal ? causal_backward(p, in, out, executor)
                  : bidirectional_backward(p, in, out, executor);
}

}  // namespace performer::kernels::PERFORMER_ISA
