#include "performer/ops/backends/composed/state_gradient.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/favor/state.h"

namespace performer::composed {

ScaledSum final_gradient(const DenseCall& p, const BackwardInputs& in) {
  ScaledSum empty =
      empty_sum({in.kv.size(0), in.kv.size(1), in.kv.size(2), p.value_dim + 1}, in.kv.options());
  if (!in.grad_kv.defined() && !in.grad_normalizer.defined()) return empty;
  const Tensor kv = in.grad_kv.defined() ? in.grad_kv : at::zeros_like(in.kv);
  const Tensor normalizer =
      in.grad_normalizer.defined() ? in.grad_normalizer : at::zeros_like(in.normalizer);
  const Tensor log2 = in.log2_scale.to(p.dtype);
  const Tensor reached = log2.gt(kReached);
  return {at::cat({kv, normalizer.unsqueeze(-1)}, -1), at::where(reached, -log2, empty.log2)};
}

void write_state_gradient(const DenseCall& p, const BackwardOutputs& outputs, const ScaledSum& grad,
                          const ScaledSum& passed) {
  if (!outputs.state_kv.defined()) return;
  const Tensor initial = p.args.state_log2_scale.to(p.dtype);
  // A feature that no key ever reached hands the gradient through at scale 1.
  const Tensor untouched = initial.le(kReached);
  const Tensor shift = (grad.log2 + initial).masked_fill(untouched, kEmptyLog2Scale);
  Tensor total = scale_pow2(grad.sum, shift.unsqueeze(-1));
  const Tensor through = untouched.logical_and(passed.log2.le(kReached));
  total = at::where(through.unsqueeze(-1), passed.sum, total);
  outputs.state_kv.copy_(total.narrow(-1, 0, p.value_dim));
  outputs.state_normalizer.copy_(total.select(-1, -1));
}

}  // namespace performer::composed
