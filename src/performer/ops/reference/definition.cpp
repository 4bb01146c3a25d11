#include <ATen/ATen.h>

#include <cmath>

#include "performer/ops/reference/parts.h"

// The definition, on dense inputs and at quadratic cost: features, the weights that they make, and
// their weighted mean. S and z appear only as the state of earlier keys. The shift that is subtracted
// from the exponents of a row cancels; log_constant is the maps' 1/m, which cancels too.
namespace performer::reference {

// phi: x [B, H, L, D], W [H, M, D]. The norm term of a query cancels too, but for the numerator.
Features features_of(const Tensor& x, const Tensor& W, const Tensor& bias, const FavorOptions& o) {
  const Tensor u = W.defined() ? x.matmul(W.transpose(-1, -2)) : x;  // [B, H, L, M]
  const Tensor half_norm = x.square().sum(-1, true) / 2;             // [B, H, L, 1]
  const Tensor none = at::zeros_like(half_norm);
  const Tensor b = bias.defined() ? bias.unsqueeze(-2) : at::zeros({}, u.options());
  const auto exponential = [&](const Tensor& log_phi, const Tensor& token) {
    return Features{at::ones_like(log_phi), log_phi + b, token};
  };
  switch (o.feature_map) {
    case FeatureMap::kPositive:  // exp(w.x - |x|^2 / 2)
      return exponential(u, -half_norm);
    case FeatureMap::kLoglinear:  // exp(w.x + b)
      return exponential(u, none);
    case FeatureMap::kHyperbolic:  // exp(+-w.x - |x|^2 / 2)
      return exponential(at::cat({u, -u}, -1), -half_norm);
    case FeatureMap::kTrigonometric: {  // exp(|x|^2 / 2) (sin w.x, cos w.x)
      const Tensor value = at::cat({u.sin(), u.cos()}, -1);
      return {value, at::zeros_like(value), half_norm};
    }
    default:  // f(w.x) + eps
      return {elementwise(o.feature_map, u) + eps_of(o), at::zeros_like(u), none};
  }
}

// w_ij = sum_r phi_r(x_i) phi_r(y_j). Exponential maps: the exponents of both sides are added
// before exp. The others have one exponent per token, at most 0 after the shift.
Weights weights_of(const Features& x, const Keys& keys, const Tensor& shift, FeatureMap map) {
  const Features& y = keys.features;
  const Tensor state = x.value * (x.exponent + keys.state_exponent - shift).exp();
  if (is_exponential(map)) {
    const Tensor exponent = (x.exponent - shift).unsqueeze(3) + (y.exponent + y.token).unsqueeze(2);
    const Tensor sum = exponent.exp().sum(-1);  // over [B, H, R, Lk, M']
    return {sum, sum.detach(), state};
  }
  const Tensor factor = (y.token.transpose(-1, -2) - shift).exp();  // [B, H, R, Lk]
  const Tensor y_value = y.value.transpose(-1, -2);
  return {x.value.matmul(y_value) * factor,
          x.value.detach().abs().matmul(y_value.detach().abs()) * factor.detach(), state};
}

// out_i = sum_j w_ij v_j / sum_j w_ij, for rows that all see exactly `keys` and `near`.
Attention attend(const Features& x, const Keys& keys, const NearKeys& near, const Evaluation& e,
                 double log_constant) {
  const Features& y = keys.features;
  // A constant for gradients. The state's exponent is always finite: rows without keys need no case
  // of their own.
  const Tensor key_scale = at::cat({keys.state_exponent, (y.exponent + y.token).detach()}, 2)
                               .amax(2, true);                            // [B, H, 1, M']
  const Tensor shift = (x.exponent.detach() + key_scale).amax(-1, true);  // [B, H, R, 1]
  const Weights w = e.unfused ? unfused_weights(x, keys, shift, key_scale, *e.unfused)
                              : weights_of(x, keys, shift, e.options.feature_map);
  Tensor num = w.keys.matmul(keys.v) + w.state.matmul(keys.state_kv);         // [B, H, R, Dv]
  Tensor den = w.keys.sum(-1, true) + w.state.matmul(keys.state_normalizer);  // [B, H, R, 1]
  Tensor log = shift + x.token + log_constant;  // what both are relative to
  Attention a;
  add_terms(a, w, keys, log.exp());
  if (near.log_weights.defined()) add_near(near, e, {num, den, log}, a);
  const Tensor zero = den.eq(0);
  a.numerator = num * log.exp();
  a.denominator = (den * log.exp()).squeeze(-1);
  a.out = e.options.renormalize == Renormalize::kNo
              ? a.numerator
              : at::where(zero, 0.0, num / at::where(zero, 1.0, den));
  if (e.unfused) a.out = rounded(a.out, *e.unfused);
  return a;
}

// All of it, or the rows that are asked for; a causal row i has the keys up to i.
Attention dense_attention(const Inputs& in, const Evaluation& e) {
  const FavorOptions& o = e.options;
  const Tensor rows = e.rows.defined() ? e.rows.cpu() : at::arange(in.q.size(2), at::kLong);
  const Tensor q =
      in.q.to(e.unfused && in.q.scalar_type() != at::kDouble ? at::kFloat : at::kDouble);
  const Tensor x = q.index_select(2, rows.to(q.device())) * std::sqrt(scale_of(o, q.size(-1)));
  const Features queries = features_of(x, heads_of(in.W, 3, q), heads_of(o.bias_q, 2, q), o);
  return attend_by_blocks(queries, keys_of({q, in.k, in.v, in.W}, o), rows, e,
                          log_constant(o.feature_map, in.W.defined() ? in.W.size(-2) : 0));
}

Attention favor_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                          const Evaluation& evaluation) {
  if (evaluation.options.cu_seqlens_q.defined()) return packed_attention({q, k, v, W}, evaluation);
  return evaluation.options.near > 0 ? near_attention({q, k, v, W}, evaluation)
                                     : dense_attention({q, k, v, W}, evaluation);
}

}  // namespace performer::reference
