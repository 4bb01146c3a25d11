#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "performer/ops/reference/parts.h"

// The near field. A sequence is cut into blocks of b tokens from its first real one; a query sees
// the keys of its own block and of the neighbours exactly (causal: the block before, and its own up to
// itself), and those of all other blocks through their features.
namespace performer::reference {
namespace {

/// Sequence n on its own, from its first real token, with the keys that its state holds exactly in
/// front. Those start at a border of blocks.
struct Sequence {
  Inputs in;             // all of q; of k and v, `held` tokens and those from `origin` on
  FavorOptions options;  // of the same tokens
  std::int64_t origin, held;
  bool has_far;
};

// Where places in the order of tokens say what is seen exactly: [begin, end).
struct Range {
  std::int64_t begin, end;
  bool operator==(const Range&) const = default;
};
Range near_range(std::int64_t place, std::int64_t count, const FavorOptions& o) {
  const auto block = place / o.near;
  const auto begin = std::max<std::int64_t>(0, (block - 1) * o.near);
  if (o.causality == Causality::kCausal) return {begin, place + 1};
  return {begin, std::min(count, (block + 2) * o.near)};
}

Tensor with_heads(const Tensor& bias, std::int64_t heads) {
  return spread_heads(bias.dim() == 2 ? bias.unsqueeze(1) : bias, 1, heads);
}

std::int64_t first_real(const FavorOptions& o, std::int64_t n, std::int64_t length) {
  Tensor real = at::ones({length}, at::kBool);
  if (o.key_mask.defined()) real = real & o.key_mask[n].cpu();
  if (o.key_bias.defined()) {
    real = real & with_heads(o.key_bias, o.key_bias.dim() == 2 ? 1 : o.key_bias.size(1))[n]
                      .ne(-kInfinity)
                      .any(0)
                      .cpu();
  }
  const Tensor found = real.nonzero();
  return found.numel() > 0 ? found[0].item<std::int64_t>() : length;
}

// Places [begin, begin + held) of the state's near field: the block before, if there is one, and
// what there is of the last.
Range held_places(const FavorState& s, std::int64_t n, std::int64_t b) {
  const auto position = s.near_position[n].item<std::int64_t>();
  const auto begin = position >= b ? 0 : b;
  return {begin, b + position % b};
}

// One feature that no key has stands for none.
void drop_far_field(Sequence& s) {
  s.in.W = at::zeros({1, s.in.q.size(-1)}, s.in.q.options().dtype(at::kDouble));
  s.options.projection_k = s.options.bias_q = s.options.bias_k = Tensor();
  s.options.initial_state = {};
}

Sequence sequence_of(const Inputs& in, const FavorOptions& o, std::int64_t n) {
  const auto H = in.q.size(1), length = in.q.size(2);
  const FavorState& state = o.initial_state;
  Sequence s{in, o, 0, 0, in.W.size(-2) > 0};
  const Range kept = state.defined() ? held_places(state, n, o.near) : Range{0, 0};
  s.held = kept.end - kept.begin;
  const bool begun = state.defined() && state.near_position[n].item<std::int64_t>() > 0;
  s.origin = begun ? 0 : first_real(o, n, length);

  const auto tokens = [&](const Tensor& t, std::int64_t dim) {
    return t.narrow(0, n, 1).slice(dim, s.origin);
  };
  const auto joined = [&](const Tensor& near, const Tensor& own) {
    if (!state.defined()) return own;
    const Tensor before = near.narrow(0, n, 1).slice(2, kept.begin, kept.end);
    return at::cat({before.to(at::kDouble), own.to(at::kDouble)}, 2);
  };
  s.in.q = in.q.narrow(0, n, 1);
  s.in.k = joined(state.near_keys, tokens(in.k, 2));
  s.in.v = joined(state.near_values, tokens(in.v, 2));
  if (o.query_bias.defined()) {
    s.options.query_bias = with_heads(o.query_bias, H).narrow(0, n, 1);
  }
  if (o.key_bias.defined() || state.defined()) {
    const Tensor own = o.key_bias.defined() ? with_heads(o.key_bias, H).to(at::kDouble)
                                            : at::zeros({n + 1, H, length}, at::kDouble);
    const Tensor near = state.defined() ? spread_heads(state.near_bias, 1, H) : Tensor();
    s.options.key_bias = joined(near, tokens(own.to(in.q.device()), 2));
  }
  if (o.key_mask.defined()) {
    const Tensor own = tokens(o.key_mask, 1);
    s.options.key_mask = at::cat({at::ones({1, s.held}, own.options()), own}, 1);
  }
  if (state.defined()) {
    FavorState& one = s.options.initial_state;
    for (Tensor* t : {&one.kv, &one.normalizer, &one.log2_scale}) *t = t->narrow(0, n, 1);
  }
  if (!s.has_far) drop_far_field(s);
  return s;
}

// What the rows of a range see exactly. key_bias counts for all maps but loglinear.
NearKeys near_keys(const Tensor& x, const Keys& keys, const FavorOptions& o) {
  const Tensor bias =
      o.feature_map == FeatureMap::kLoglinear
          ? at::zeros_like(keys.bias).masked_fill(keys.bias.eq(-kInfinity), -kInfinity)
          : keys.bias;
  return {x.matmul(keys.y.transpose(-1, -2)) + bias.transpose(-1, -2), keys.v};
}

// phi phi estimates exp(x.y) itself: loglinear has its 1/m, too.
double far_log_constant(const FavorOptions& o, std::int64_t features) {
  return o.feature_map == FeatureMap::kLoglinear ? -std::log(static_cast<double>(features))
                                                 : log_constant(o.feature_map, features);
}

Attention attend_sequence(const Sequence& s, const Evaluation& e, const Tensor& rows) {
  const FavorOptions& o = s.options;
  const bool single = e.unfused && s.in.q.scalar_type() != at::kDouble;
  const Tensor q = s.in.q.to(single ? at::kFloat : at::kDouble);
  const Tensor x = q * std::sqrt(scale_of(o, q.size(-1)));  // [1, H, L, D]
  Features queries = features_of(x, heads_of(s.in.W, 3, q), heads_of(o.bias_q, 2, q), o);
  if (o.query_bias.defined()) {
    queries.token = queries.token + o.query_bias.unsqueeze(-1).to(q.scalar_type());
  }
  const Keys keys = keys_of({q, s.in.k, s.in.v, s.in.W}, o);
  const auto count = keys.v.size(2);
  const auto range_of = [&](std::int64_t r) {
    const auto row = r < rows.numel() ? rows[r].item<std::int64_t>() : -1;
    return row < s.origin ? Range{0, 0} : near_range(s.held + row - s.origin, count, o);
  };
  std::vector<Attention> parts;
  for (std::int64_t r = 0, next = 0; r == 0 || r < rows.numel(); r = next) {
    const Range near = range_of(r);
    for (next = r + 1; next < rows.numel() && range_of(next) == near;) ++next;
    const bool after = o.causality == Causality::kBidirectional && near.end > 0;
    const Tensor far =
        at::cat({at::arange(s.has_far ? near.begin : 0, at::kLong),
                 at::arange(s.has_far && after ? near.end : count, count, at::kLong)});
    const Tensor index = rows.slice(0, r, next);
    const Features of_rows{queries.value.index_select(2, index),
                           queries.exponent.index_select(2, index),
                           queries.token.index_select(2, index)};
    parts.push_back(
        attend(of_rows, take_keys(keys, far),
               near_keys(x.index_select(2, index),
                         take_keys(keys, at::arange(near.begin, near.end, at::kLong)), o),
               e, far_log_constant(o, s.in.W.size(-2))));
  }
  return concatenate(parts);
}

}  // namespace

Attention near_attention(const Inputs& in, const Evaluation& e) {
  const Tensor rows = e.rows.defined() ? e.rows.cpu() : at::arange(in.q.size(2), at::kLong);
  std::vector<Attention> all;
  for (std::int64_t n = 0; n < in.q.size(0); ++n) {
    all.push_back(attend_sequence(sequence_of(in, e.options, n), e, rows));
  }
  return concatenate(all, 0);
}

void add_near(const NearKeys& near, const Evaluation& e, const FieldSums& sums, Attention& a) {
  const Tensor& scores = near.log_weights;
  const Tensor top = scores.size(-1) > 0 ? at::maximum(sums.log, scores.amax(-1, true)).detach()
                                         : sums.log.detach();
  const Tensor factor = (sums.log - top).exp();
  const Tensor weights =
      e.unfused ? rounded((scores - top).exp(), *e.unfused) : (scores - top).exp();
  sums.num = sums.num * factor + weights.matmul(near.v);
  sums.den = sums.den * factor + weights.sum(-1, true);
  sums.log = top;
  const Tensor terms = (weights * top.exp()).detach();
  a.numerator_terms = a.numerator_terms + terms.matmul(near.v.detach().abs());
  a.denominator_terms = a.denominator_terms + terms.sum(-1);
}

}  // namespace performer::reference
