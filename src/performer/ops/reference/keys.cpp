#include <ATen/ATen.h>

#include <cmath>

#include "performer/ops/reference/parts.h"

namespace performer::reference {

namespace {

Tensor with_head_axis(const Tensor& t, std::int64_t rank, std::int64_t axis) {
  return t.dim() == rank ? t : t.unsqueeze(axis);
}

}  // namespace

Tensor spread_heads(const Tensor& t, std::int64_t axis, std::int64_t heads) {
  return t.size(axis) == heads ? t : t.repeat_interleave(heads / t.size(axis), axis);
}

Tensor heads_of(const Tensor& W, std::int64_t rank, const Tensor& q) {
  if (!W.defined()) return {};
  return spread_heads(with_head_axis(W, rank, 0).to(q.scalar_type()), 0, q.size(1));
}

Keys keys_of(const Inputs& in, const FavorOptions& o) {
  const Tensor& q = in.q;
  const auto B = q.size(0), H = q.size(1), Lk = in.k.size(2);
  const auto dtype = q.scalar_type();
  const Tensor k = spread_heads(in.k.to(dtype), 1, H) * std::sqrt(scale_of(o, q.size(-1)));
  const Tensor v = spread_heads(in.v.to(dtype), 1, H);

  // Removed keys are replaced before anything is computed from them: they may hold NaN.
  Tensor real = at::ones({B, H, Lk, 1}, q.options().dtype(at::kBool));
  Tensor key_bias = at::zeros({B, H, Lk, 1}, q.options());
  if (o.key_mask.defined()) real = real & o.key_mask.view({B, 1, Lk, 1});
  if (o.key_bias.defined()) {
    const Tensor given = spread_heads(with_head_axis(o.key_bias, 3, 1).to(dtype), 1, H);
    real = real & given.unsqueeze(-1).ne(-kInfinity);
    key_bias = at::where(real, given.unsqueeze(-1), 0.0);
  }
  const Tensor W_k = o.projection_k.defined() ? o.projection_k : in.W;
  Keys keys;
  keys.features =
      features_of(at::where(real, k, 0.0), heads_of(W_k, 3, q), heads_of(o.bias_k, 2, q), o);
  keys.features.token = (keys.features.token + key_bias).masked_fill(~real, -kInfinity);
  keys.v = at::where(real, v, 0.0);
  keys.y = at::where(real, k, 0.0);
  keys.bias = key_bias.masked_fill(~real, -kInfinity);

  add_state(keys, o.initial_state, q);
  return keys;
}

}  // namespace performer::reference
