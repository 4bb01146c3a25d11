#include "performer/ops/reference/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

namespace performer::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kBlockElements = std::int64_t{1} << 22;

/// phi_r(x) = value_r exp(exponent_r + token), apart from the constant of the map.
struct Features {
  Tensor value, exponent;  // [B, H, L, M']
  Tensor token;            // [B, H, L, 1]
};

/// Everything on the side of the keys, heads already repeated to those of q.
struct Keys {
  Features features;
  Tensor v;                           // [B, H, Lk, Dv]
  Tensor state_kv, state_normalizer;  // [B, H, M', Dv], [B, H, M', 1]
  Tensor state_exponent;              // [B, H, 1, M'], natural logarithm
};

/// Query head h reads head h // (H / heads) of an argument that is shared (1), per key head or per
/// query head.
Tensor spread_heads(const Tensor& t, std::int64_t axis, std::int64_t heads) {
  return t.size(axis) == heads ? t : t.repeat_interleave(heads / t.size(axis), axis);
}

Tensor with_head_axis(const Tensor& t, std::int64_t rank, std::int64_t axis) {
  return t.dim() == rank ? t : t.unsqueeze(axis);
}

/// f of the generalised maps.
Tensor elementwise(FeatureMap map, const Tensor& u) {
  switch (map) {
    case FeatureMap::kRelu:
      return u.relu();
    case FeatureMap::kExp:
      return u.exp();
    case FeatureMap::kSigmoid:
      return u.sigmoid();
    case FeatureMap::kAbs:
      return u.abs();
    case FeatureMap::kGelu:
      return 0.5 * u * (1 + at::erf(u / std::numbers::sqrt2));
    case FeatureMap::kCos:
      return u.cos();
    case FeatureMap::kTanh:
      return u.tanh();
    case FeatureMap::kIdentity:
      return u;
    case FeatureMap::kSquare:
      return u * u;
    case FeatureMap::kElu1:
      return at::where(u > 0, u + 1, u.clamp_max(0).exp());
    case FeatureMap::kSgn:
      return u.sign();
    default:
      TORCH_INTERNAL_ASSERT(false, "not a generalised map");
  }
}

bool is_exponential(FeatureMap map) { return map <= FeatureMap::kHyperbolic; }

bool is_softmax(FeatureMap map) { return map <= FeatureMap::kTrigonometric; }

/// log of phi's constant squared: 1/M or 1/(2M) for the paper's softmax estimators.
double log_constant(FeatureMap map, std::int64_t rows) {
  switch (map) {
    case FeatureMap::kPositive:
    case FeatureMap::kTrigonometric:
      return -std::log(static_cast<double>(rows));
    case FeatureMap::kHyperbolic:
      return -std::log(2.0 * static_cast<double>(rows));
    default:
      return 0;
  }
}

double scale_of(const FavorOptions& o, std::int64_t dim) {
  return o.scale.value_or(is_softmax(o.feature_map) ? 1 / std::sqrt(static_cast<double>(dim)) : 1);
}

/// x: [B, H, L, D]; W: [H, M, D] or undefined; bias: [H, M'] or undefined.
Features features_of(const Tensor& x, const Tensor& W, const Tensor& bias, const FavorOptions& o) {
  const Tensor u = W.defined() ? x.matmul(W.transpose(-1, -2)) : x;  // [B, H, L, M]
  const Tensor half_norm = x.square().sum(-1, true) / 2;             // [B, H, L, 1]
  const Tensor none = at::zeros_like(half_norm);
  const Tensor b = bias.defined() ? bias.unsqueeze(-2) : at::zeros({}, u.options());
  const auto exponential = [&](const Tensor& log_phi, const Tensor& token) {
    return Features{at::ones_like(log_phi), log_phi + b, token};
  };
  switch (o.feature_map) {
    case FeatureMap::kPositive:
      return exponential(u, -half_norm);
    case FeatureMap::kLoglinear:
      return exponential(u, none);
    case FeatureMap::kHyperbolic:
      return exponential(at::cat({u, -u}, -1), -half_norm);
    case FeatureMap::kTrigonometric: {
      const Tensor value = at::cat({u.sin(), u.cos()}, -1);
      return {value, at::zeros_like(value), half_norm};
    }
    default: {
      const double eps = o.eps.value_or(o.feature_map == FeatureMap::kElu1 ? 0 : 1e-3);
      return {elementwise(o.feature_map, u) + eps, at::zeros_like(u), none};
    }
  }
}

Tensor heads_of(const Tensor& W, std::int64_t rank, const Tensor& like) {
  if (!W.defined()) return {};
  return spread_heads(with_head_axis(W, rank, 0).to(like.scalar_type()), 0, like.size(1));
}

/// q, with its dtype and heads, decides how the keys are laid out.
Keys keys_of(const Tensor& q, Tensor k, Tensor v, const Tensor& W, const FavorOptions& o) {
  const auto B = q.size(0), H = q.size(1), Lk = k.size(2);
  const auto dtype = q.scalar_type();
  k = spread_heads(k.to(dtype), 1, H) * std::sqrt(scale_of(o, q.size(-1)));
  v = spread_heads(v.to(dtype), 1, H);

  // Removed keys are replaced before anything is computed from them: they may hold NaN.
  Tensor real = at::ones({B, H, Lk, 1}, q.options().dtype(at::kBool));
  Tensor key_bias = at::zeros({B, H, Lk, 1}, q.options());
  if (o.key_mask.defined()) real = real & o.key_mask.view({B, 1, Lk, 1});
  if (o.key_bias.defined()) {
    const Tensor given = spread_heads(with_head_axis(o.key_bias, 3, 1).to(dtype), 1, H);
    real = real & given.unsqueeze(-1).ne(-kInfinity);
    key_bias = at::where(real, given.unsqueeze(-1), 0.0);
  }
  const Tensor W_k = o.projection_k.defined() ? o.projection_k : W;
  Keys keys;
  keys.features =
      features_of(at::where(real, k, 0.0), heads_of(W_k, 3, q), heads_of(o.bias_k, 2, q), o);
  keys.features.token = (keys.features.token + key_bias).masked_fill(~real, -kInfinity);
  keys.v = at::where(real, v, 0.0);

  const auto M = keys.features.value.size(-1), Dv = v.size(-1);
  const auto& state = o.initial_state;
  const auto of_state = [&](const Tensor& t) { return spread_heads(t.to(dtype), 1, H); };
  keys.state_kv = state.defined() ? of_state(state.kv) : at::zeros({B, H, M, Dv}, q.options());
  keys.state_normalizer = state.defined() ? of_state(state.normalizer).unsqueeze(-1)
                                          : at::zeros({B, H, M, 1}, q.options());
  const Tensor log2_scale = state.defined() ? of_state(state.log2_scale)
                                            : at::full({B, H, M}, kEmptyLog2Scale, q.options());
  keys.state_exponent = log2_scale.unsqueeze(-2) * std::numbers::ln2;
  return keys;
}

Keys first_keys(Keys keys, std::int64_t count) {
  for (Tensor* t : {&keys.features.value, &keys.features.exponent, &keys.features.token, &keys.v}) {
    *t = t->slice(2, 0, count);
  }
  return keys;
}

/// Rounded values, the gradient of the identity.
Tensor rounded(const Tensor& t, at::ScalarType dtype) {
  return t + (t.detach().to(dtype).to(t.scalar_type()) - t.detach());
}

/// sum_r phi_r(x_i) phi_r(y_j) exp(-shift_i), for the keys and for each feature of the state.
struct Weights {
  Tensor keys, keys_terms;  // [B, H, R, Lk]; the sum and the sum of absolute values
  Tensor state;             // [B, H, R, M']
};

/// Float64. Exponential maps: the exponents of both sides are added before exp. The others have one
/// exponent per token, at most 0 after the shift.
Weights exact_weights(const Features& x, const Keys& keys, const Tensor& shift, FeatureMap map) {
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

/// A product of two stored matrices of features, each rounded to `dtype`. key_scale is the largest
/// exponent of each feature over the keys; the query takes it back.
Weights unfused_weights(const Features& x, const Keys& keys, const Tensor& shift,
                        const Tensor& key_scale, at::ScalarType dtype) {
  const Features& y = keys.features;
  const Tensor phi_x = rounded(x.value * (x.exponent + key_scale - shift).exp(), dtype);
  const Tensor phi_y = rounded(y.value * (y.exponent + y.token - key_scale).exp(), dtype);
  return {phi_x.matmul(phi_y.transpose(-1, -2)),
          phi_x.detach().abs().matmul(phi_y.detach().abs().transpose(-1, -2)),
          phi_x * (keys.state_exponent - key_scale).exp()};
}

/// A block of rows that all see exactly `keys`.
Attention attend(const Features& x, const Keys& keys, const Evaluation& e, double log_constant) {
  const Features& y = keys.features;
  // The shift cancels in value and gradient, so it is a constant. The state's exponent is always
  // finite: rows without keys need no case of their own.
  const Tensor key_scale = at::cat({keys.state_exponent, (y.exponent + y.token).detach()}, 2)
                               .amax(2, true);                            // [B,H,1,M']
  const Tensor shift = (x.exponent.detach() + key_scale).amax(-1, true);  // [B,H,R,1]
  const Weights w = e.unfused ? unfused_weights(x, keys, shift, key_scale, *e.unfused)
                              : exact_weights(x, keys, shift, e.options.feature_map);
  const Tensor num = w.keys.matmul(keys.v) + w.state.matmul(keys.state_kv);         // [B,H,R,Dv]
  const Tensor den = w.keys.sum(-1, true) + w.state.matmul(keys.state_normalizer);  // [B,H,R,1]
  const Tensor factor = (shift + x.token + log_constant).exp();
  const Tensor abs_state = w.state.detach().abs();

  Attention a;
  a.numerator = num * factor;
  a.denominator = (den * factor).squeeze(-1);
  a.numerator_terms = (w.keys_terms.matmul(keys.v.detach().abs()) +
                       abs_state.matmul(keys.state_kv.detach().abs())) *
                      factor.detach();
  a.denominator_terms =
      ((w.keys_terms.sum(-1, true) + abs_state.matmul(keys.state_normalizer.detach().abs())) *
       factor.detach())
          .squeeze(-1);
  const Tensor zero = den.eq(0);
  a.out = e.options.renormalize == Renormalize::kNo
              ? a.numerator
              : at::where(zero, 0.0, num / at::where(zero, 1.0, den));
  if (e.unfused) a.out = rounded(a.out, *e.unfused);
  return a;
}

Attention concatenate(const std::vector<Attention>& parts) {
  const auto join = [&](Tensor Attention::*field) {
    std::vector<Tensor> pieces;
    pieces.reserve(parts.size());
    for (const auto& part : parts) pieces.push_back(part.*field);
    return at::cat(pieces, 2);
  };
  return {join(&Attention::out), join(&Attention::numerator), join(&Attention::denominator),
          join(&Attention::numerator_terms), join(&Attention::denominator_terms)};
}

Attention dense_attention(Tensor q, const Tensor& k, const Tensor& v, const Tensor& W,
                          const Evaluation& e) {
  const auto& o = e.options;
  const bool causal = o.causality == Causality::kCausal;
  const Tensor rows = e.rows.defined() ? e.rows.cpu() : at::arange(q.size(2), at::kLong);
  q = q.to(e.unfused && q.scalar_type() != at::kDouble ? at::kFloat : at::kDouble);
  const Keys keys = keys_of(q, k, v, W, o);
  const Tensor x = q.index_select(2, rows.to(q.device())) * std::sqrt(scale_of(o, q.size(-1)));
  const Features queries = features_of(x, heads_of(W, 3, q), heads_of(o.bias_q, 2, q), o);
  const double constant = log_constant(o.feature_map, W.defined() ? W.size(-2) : 0);

  // Causal rows see different keys, so each is a block of its own.
  const auto per_row = q.size(0) * q.size(1) * (k.size(2) + 1) * queries.value.size(-1);
  const auto block =
      causal ? 1 : std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, per_row));
  std::vector<Attention> parts;
  for (std::int64_t begin = 0; begin == 0 || begin < rows.numel(); begin += block) {
    const auto end = std::min(begin + block, rows.numel());
    const auto of_block = [&](const Tensor& t) { return t.slice(2, begin, end); };
    const Features row{of_block(queries.value), of_block(queries.exponent),
                       of_block(queries.token)};
    const bool cut = causal && end > begin;
    parts.push_back(attend(row, cut ? first_keys(keys, rows[begin].item<std::int64_t>() + 1) : keys,
                           e, constant));
  }
  return concatenate(parts);
}

/// Sequence n of a packed problem is a problem of its own.
Attention packed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                           const Evaluation& e) {
  const auto& o = e.options;
  const Tensor cu_q = o.cu_seqlens_q.cpu().to(at::kLong), cu_k = o.cu_seqlens_k.cpu().to(at::kLong);
  const Tensor rows = e.rows.defined() ? e.rows.cpu() : at::arange(q.size(2), at::kLong);
  std::vector<Attention> parts;
  for (std::int64_t n = 0; n + 1 < cu_q.numel(); ++n) {
    const auto range = [n](const Tensor& cu, const Tensor& t, std::int64_t axis) {
      return t.defined() ? t.slice(axis, cu[n].item<std::int64_t>(), cu[n + 1].item<std::int64_t>())
                         : t;
    };
    Evaluation one = e;
    one.options.cu_seqlens_q = one.options.cu_seqlens_k = Tensor();
    one.rows = rows.masked_select(rows.ge(cu_q[n]) & rows.lt(cu_q[n + 1])) - cu_q[n];
    one.options.key_mask = range(cu_k, o.key_mask, -1);
    one.options.key_bias = range(cu_k, o.key_bias, -1);
    if (auto& state = one.options.initial_state; state.defined()) {
      for (Tensor* t : {&state.kv, &state.normalizer, &state.log2_scale}) *t = t->narrow(0, n, 1);
    }
    parts.push_back(
        dense_attention(range(cu_q, q, 2), range(cu_k, k, 2), range(cu_k, v, 2), W, one));
  }
  return concatenate(parts);
}

}  // namespace

Attention favor_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                          const Evaluation& evaluation) {
  return evaluation.options.cu_seqlens_q.defined() ? packed_attention(q, k, v, W, evaluation)
                                                   : dense_attention(q, k, v, W, evaluation);
}

}  // namespace performer::reference
