#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "performer/ops/reference/parts.h"

// What favor_attention is compared with: the attention it estimates, and the recipe it replaces.
namespace performer::reference {

Tensor exact_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const FavorOptions& options) {
  const auto Lq = q.size(2), Lk = k.size(2), group = q.size(1) / k.size(1);
  const Tensor x =
      q.to(at::kDouble) * options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  Tensor visible = at::ones({Lq, Lk}, x.options().dtype(at::kBool));
  if (options.causality == Causality::kCausal) visible = visible.tril();
  if (options.key_mask.defined()) visible = visible & options.key_mask.unsqueeze(1).unsqueeze(1);
  const Tensor key_seen = options.key_mask.defined() ? options.key_mask.view({k.size(0), 1, Lk, 1})
                                                     : at::ones({}, x.options().dtype(at::kBool));
  const Tensor keys = at::where(key_seen, k.to(at::kDouble).repeat_interleave(group, 1), 0.0);
  const Tensor values = at::where(key_seen, v.to(at::kDouble).repeat_interleave(group, 1), 0.0);
  const Tensor scores = x.matmul(keys.transpose(-1, -2)).masked_fill(~visible, -kInfinity);
  const Tensor shift =
      Lk > 0 ? scores.detach().amax(-1, true).clamp_min(std::numeric_limits<double>::lowest())
             : at::zeros({}, x.options());
  const Tensor weights = (scores - shift).exp();  // [B, H, Lq, Lk]
  const Tensor sum = weights.sum(-1, true);
  return weights.matmul(values) / at::where(sum.eq(0), 1.0, sum);
}

Tensor one_scale_favor_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                                 Causality causality) {
  constexpr double kEps = 1e-6;
  const double root_scale = std::pow(static_cast<double>(q.size(-1)), -0.25);
  const Tensor Wt = W.to(q.scalar_type()).transpose(-1, -2);
  const auto features = [&](const Tensor& t, at::IntArrayRef maximum_over) {
    const Tensor x = t * root_scale;
    const Tensor u = x.matmul(Wt);  // [B, H, L, M]
    const Tensor half_norm = x.square().sum(-1, true) / 2;
    return (u - half_norm - u.amax(maximum_over, true)).exp() + kEps;
  };
  const Tensor phi_q = features(q, {-1}), phi_k = features(k, {-2, -1});
  Tensor weights = phi_q.matmul(phi_k.transpose(-1, -2));  // [B, H, Lq, Lk]
  if (causality == Causality::kCausal) weights = weights.tril();
  return weights.matmul(v) / weights.sum(-1, true);
}

}  // namespace performer::reference
