#include "performer/ops/analysis/quality_estimate.h"

#include <ATen/ATen.h>

#include <cmath>

#include "performer/ops/exact/softmax_rows.h"

namespace performer {
namespace {

// [M] or [heads, M] -> [1, heads, 1, M], heads = 1 or H.
Tensor per_head(const Tensor& t, std::int64_t heads) {
  const Tensor with_heads = t.dim() == 1 ? t.unsqueeze(0) : t;
  const Tensor repeated = with_heads.size(0) == 1
                              ? with_heads
                              : with_heads.repeat_interleave(heads / with_heads.size(0), 0);
  return repeated.to(at::kDouble).unsqueeze(0).unsqueeze(2);
}

// W x for each query: [B, H, S, D] -> [B, H, S, M].
Tensor project(const Tensor& x, const Tensor& W) {
  if (!W.defined()) return x;
  const Tensor w = W.dim() == 2 ? W.unsqueeze(0) : W;
  const Tensor heads =
      w.size(0) == 1 ? w : w.repeat_interleave(x.size(1) / w.size(0), 0);  // [1|H, M, D]
  return at::matmul(x, heads.transpose(-2, -1));
}

// Features as a sign and a log magnitude, up to a factor of each row: no overflow at any norm.
struct LogFeatures {
  Tensor log, sign;  // [B, H, S, M']
};

LogFeatures query_features(const Tensor& q, const Tensor& W, const FavorOptions& options) {
  const FeatureMap map = options.feature_map;
  const double fallback = is_softmax_map(map) ? 1.0 / std::sqrt(static_cast<double>(q.size(3))) : 1;
  const Tensor u = project(q * std::sqrt(options.scale.value_or(fallback)), W);
  if (is_exponential_map(map)) {
    Tensor log = map == FeatureMap::kHyperbolic ? at::cat({u, -u}, -1) : u;
    if (options.bias_q.defined()) log = log + per_head(options.bias_q, q.size(1));
    return {log, at::ones_like(log)};
  }
  if (map == FeatureMap::kExp) {
    const double eps = options.eps.value_or(default_eps(map));
    const Tensor log = eps > 0 ? at::logaddexp(u, at::full({}, std::log(eps), u.options())) : u;
    return {log, at::ones_like(log)};
  }
  const Tensor phi = map == FeatureMap::kTrigonometric
                         ? at::cat({u.sin(), u.cos()}, -1)
                         : apply_elementwise(map, u) + options.eps.value_or(default_eps(map));
  return {phi.abs().log(), phi.sign()};
}

// [B, H, S]
Tensor effective_samples(const LogFeatures& query, const FavorState& state) {
  const std::int64_t heads = query.log.size(1);
  const Tensor normalizer = expand_heads(state.normalizer, heads).unsqueeze(2);  // [B, H, 1, M']
  const Tensor exponent = expand_heads(state.log2_scale, heads).unsqueeze(2).to(at::kDouble);
  const Tensor log = query.log + normalizer.abs().log() + exponent * M_LN2;
  const Tensor share = query.sign * normalizer.sign() * (log - log.amax(-1, true)).exp();
  return share.sum(-1).square() / share.square().sum(-1);
}

// The options for keys [start, start + length).
FavorOptions narrow_keys(FavorOptions options, std::int64_t start, std::int64_t length) {
  if (options.key_mask.defined()) options.key_mask = options.key_mask.narrow(1, start, length);
  if (options.key_bias.defined()) options.key_bias = options.key_bias.narrow(-1, start, length);
  return options;
}

FavorOptions in_float64(FavorOptions options) {
  for (Tensor* t : {&options.projection_k, &options.bias_q, &options.bias_k, &options.key_bias}) {
    if (t->defined()) *t = t->to(at::kDouble);
  }
  return options;
}

}  // namespace

RowEstimates estimate_rows(const EstimateInputs& in, const std::vector<std::int64_t>& rows,
                           const FavorOptions& options) {
  FavorOptions all = in_float64(options);
  all.causality = Causality::kBidirectional;
  all.renormalize = Renormalize::kYes;
  const LogFeatures query = query_features(in.q, in.W, options);
  if (options.causality == Causality::kBidirectional) {
    const auto [out, state] = favor_attention_with_state(in.q, in.k, in.v, in.W, all);
    return {out, effective_samples(query, state)};
  }
  std::vector<Tensor> outs, sizes;
  FavorState state;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const std::int64_t length = rows[i] + 1 - start;
    FavorOptions segment = narrow_keys(all, start, length);
    segment.initial_state = state;
    Tensor out;
    std::tie(out, state) =
        favor_attention_with_state(in.q.narrow(2, row, 1), in.k.narrow(2, start, length),
                                   in.v.narrow(2, start, length), in.W, segment);
    outs.push_back(out);
    sizes.push_back(
        effective_samples({query.log.narrow(2, row, 1), query.sign.narrow(2, row, 1)}, state));
    start += length;
  }
  return {at::cat(outs, 2), at::cat(sizes, 2)};
}

}  // namespace performer
