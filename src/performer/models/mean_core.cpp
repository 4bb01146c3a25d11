#include "performer/models/mean_core.h"

#include <ATen/ATen.h>

namespace performer::models {

Tensor MeanCore::forward(const Heads& heads, const Tensor& key_mask) {
  Tensor v = heads.v.to(sum_type(heads.v));  // [B, H, L, D]
  Tensor present = at::ones({1, 1, v.size(2), 1}, v.options());
  if (key_mask.defined()) {
    const Tensor real = key_mask.unsqueeze(1).unsqueeze(-1);  // [B, 1, L, 1]
    v = v.masked_fill(real.logical_not(), 0);
    present = real.to(v.scalar_type());
  }
  if (causal_) {
    return (v.cumsum(2) / present.cumsum(2).clamp_min(1)).to(heads.v.scalar_type());
  }
  const Tensor mean = v.sum(2, /*keepdim=*/true) / present.sum(2, /*keepdim=*/true).clamp_min(1);
  return mean.to(heads.v.scalar_type()).expand_as(heads.v);
}

Tensor MeanCore::decode(const Heads& heads, LayerState& state, std::int64_t position) {
  Tensor sums = heads.v.to(sum_type(heads.v)).cumsum(2);
  if (state.sum.defined()) sums = sums + state.sum;
  const std::int64_t length = heads.v.size(2);
  state.sum = sums.narrow(2, length - 1, 1).clone();
  const Tensor count = at::arange(position + 1, position + length + 1, sums.options());
  return (sums / count.view({1, 1, length, 1})).to(heads.v.scalar_type());
}

}  // namespace performer::models
