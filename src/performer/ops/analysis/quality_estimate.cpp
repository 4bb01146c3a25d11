#include "performer/ops/analysis/quality_estimate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "performer/ops/exact/softmax_rows.h"
#include "performer/ops/favor/merge.h"

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
  for (Tensor* t : {&options.projection_k, &options.bias_q, &options.bias_k, &options.key_bias,
                    &options.query_bias}) {
    if (t->defined()) *t = t->to(at::kDouble);
  }
  return options;
}

// The keys far from the sampled rows of one batch entry, which features stand for.
class FarKeys {
 public:
  FarKeys(const EstimateInputs& in, FavorOptions options, std::int64_t n)
      : no_query_(in.q.narrow(0, n, 1).narrow(2, 0, 0)),
        k_(in.k.narrow(0, n, 1)),
        v_(in.v.narrow(0, n, 1)),
        W_(in.W),
        options_(std::move(options)) {
    options_.causality = Causality::kBidirectional;
    options_.near = 0, options_.query_bias = Tensor();
    for (Tensor* t : {&options_.key_mask, &options_.key_bias}) {
      if (t->defined()) *t = t->narrow(0, n, 1);
    }
  }

  /// `state`, which may be none, with keys [begin, end).
  FavorState add(const FavorState& state, std::int64_t begin, std::int64_t end) const {
    const std::int64_t length = std::max<std::int64_t>(end - begin, 0);
    FavorOptions segment = narrow_keys(options_, begin, length);
    segment.initial_state = state;
    const auto keys = [&](const Tensor& t) { return t.slice(2, begin, begin + length); };
    return favor_attention_with_state(no_query_, keys(k_), keys(v_), W_, segment).second;
  }

 private:
  Tensor no_query_, k_, v_, W_;
  FavorOptions options_;
};

// What is far from each of the rows: the ranges before them grow, and those behind them shrink.
std::vector<FavorState> far_states(const FarKeys& keys, const std::vector<FarPairs::Range>& ranges,
                                   std::int64_t length) {
  std::vector<FavorState> states;
  FavorState before, after;
  std::int64_t end = 0, begin = length;
  for (const auto& range : ranges) {
    before = keys.add(before, end, range.before);
    end = std::max(end, range.before);
    states.push_back(before);
  }
  for (std::size_t i = ranges.size(); i-- > 0;) {
    after = keys.add(after, ranges[i].after, begin);
    begin = std::min(begin, ranges[i].after);
    states[i] = merge_states(states[i], after);
  }
  return states;
}

Tensor far_effective_samples(const EstimateInputs& in, const std::vector<std::int64_t>& rows,
                             const LogFeatures& query, const FavorOptions& options) {
  const FarPairs pairs(in.k, options);
  std::vector<Tensor> all;
  for (std::int64_t n = 0; n < in.q.size(0); ++n) {
    std::vector<FarPairs::Range> ranges;
    ranges.reserve(rows.size());
    for (const std::int64_t row : rows) ranges.push_back(pairs.range(n, row));
    const auto states = far_states(FarKeys(in, options, n), ranges, in.k.size(2));
    std::vector<Tensor> sizes;
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto of_row = [&](const Tensor& t) {
        return t.narrow(0, n, 1).narrow(2, static_cast<std::int64_t>(i), 1);
      };
      sizes.push_back(effective_samples({of_row(query.log), of_row(query.sign)}, states[i]));
    }
    all.push_back(at::cat(sizes, 2));
  }
  const Tensor padding = pairs.in_sequence(in.positions).squeeze(-1).logical_not();  // [B, 1, S]
  return at::cat(all, 0).masked_fill(padding, NAN);
}

RowEstimates estimate_near_rows(const EstimateInputs& in, const std::vector<std::int64_t>& rows,
                                const FavorOptions& options) {
  const Tensor out = favor_attention(in.every_q, in.k, in.v, in.W, options);
  RowEstimates found{out.index_select(2, in.positions), {}};
  found.effective_samples =
      in.W.size(-2) > 0
          ? far_effective_samples(in, rows, query_features(in.q, in.W, options), options)
          : at::full_like(in.q.select(-1, 0), NAN);
  return found;
}

}  // namespace

RowEstimates estimate_rows(const EstimateInputs& in, const std::vector<std::int64_t>& rows,
                           const FavorOptions& options) {
  FavorOptions all = in_float64(options);
  all.renormalize = Renormalize::kYes;
  if (options.near > 0) return estimate_near_rows(in, rows, all);
  all.causality = Causality::kBidirectional;
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
