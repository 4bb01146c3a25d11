#include "performer/ops/backends/composed/heads.h"

#include <ATen/ATen.h>

namespace performer::composed {

Tensor Heads::split_queries(const Tensor& x) const { return x.unflatten(1, {state, group()}); }

Tensor Heads::join_queries(const Tensor& x) const { return x.flatten(1, 2); }

Tensor Heads::expand_keys(const Tensor& x) const {
  if (x.size(1) == 1 || x.size(1) == state) return x;
  return x.repeat_interleave(state / x.size(1), 1);
}

Tensor Heads::reduce_keys(const Tensor& grad) const {
  if (key == state) return grad;
  return grad.unflatten(1, {key, state / key}).sum(2);
}

Tensor Heads::query_parameter(const Tensor& p) const {
  const auto heads = p.size(0);
  if (heads == 1) return p.unsqueeze(0);
  if (heads == query) return p.unflatten(0, {state, group()});
  return p.repeat_interleave(state / heads, 0).unsqueeze(1);
}

Tensor Heads::key_parameter(const Tensor& p) const {
  const auto heads = p.size(0);
  return heads == 1 || heads == state ? p : p.repeat_interleave(state / heads, 0);
}

Tensor reduce_heads(const Tensor& grad, std::int64_t heads) {
  if (grad.size(0) == heads) return grad;
  return grad.unflatten(0, {heads, grad.size(0) / heads}).sum(1);
}

}  // namespace performer::composed
