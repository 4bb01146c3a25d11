#include "performer/ops/backends/replay.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/backends/composed/scaled_sum.h"

namespace performer::backends {
namespace {

// The gradients that come in are for state tensors of other scales: kv 2^log2_scale is the same.
void rescale_state_gradients(const FavorSaved& saved, FavorSaved& own) {
  const Tensor shift = (saved.result.log2_scale - own.result.log2_scale)
                           .masked_fill(own.result.log2_scale.le(composed::kReached), 0)
                           .to(own.result.kv.scalar_type());
  if (saved.grad_kv.defined()) {
    own.grad_kv = composed::scale_pow2(saved.grad_kv, -shift.unsqueeze(-1));
  }
  if (saved.grad_normalizer.defined()) {
    own.grad_normalizer = composed::scale_pow2(saved.grad_normalizer, -shift);
  }
}

}  // namespace

FavorSaved replay_forward(
    const FavorSaved& saved, const FavorArgs& args,
    const std::function<void(const FavorArgs&, const FavorResult&)>& forward) {
  FavorSaved own = saved;
  own.result = allocate_result(args);
  forward(args, own.result);
  if (saved.grad_kv.defined() || saved.grad_normalizer.defined()) {
    rescale_state_gradients(saved, own);
  }
  return own;
}

}  // namespace performer::backends
