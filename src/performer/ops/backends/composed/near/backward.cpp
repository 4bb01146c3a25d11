#include "performer/ops/backends/composed/near/backward.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/near/pass.h"
#include "performer/ops/backends/composed/parameter_gradient.h"
#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/backends/composed/state_gradient.h"
#include "performer/ops/favor/state.h"

// Both fields share the rows' denominators and delta = do . o, and each is differentiated on its
// own. Of the far field (backward.cpp has its formulas) the walk up serves the queries, which sum
// the keys before them, and the walk down the keys; without causality both serve both. What the far
// weights of a row gain together goes to its own factor: -|x|^2 / 2 and query_bias.
namespace performer::composed {
namespace {

/// Sums over all blocks, in slots.
struct TokenGradients {
  Tensor q;             // [B, Hs, G, T, D]
  Tensor query_factor;  // [B, Hs, G, T] of the log of a query's own factor
  Tensor k, v;          // [B, Hs, T, D], [B, Hs, T, Dv]
  Tensor key_bias;      // [B, Hs, T]
};

class Backward {
 public:
  Backward(const FavorArgs& args, const BackwardInputs& in, const BackwardOutputs& out)
      : pass_(args), in_(in), out_(out), rows_(all_rows(args)) {
    const Tensor& k = pass_.call.args.k;
    const auto B = k.size(0), T = k.size(2), Hs = pass_.call.heads.state;
    const auto zeros = [&](at::IntArrayRef sizes) { return at::zeros(sizes, k.options()); };
    sum_.q = at::zeros_like(pass_.call.heads.split_queries(pass_.call.args.q));
    sum_.query_factor = at::zeros_like(rows_.inverse);
    sum_.k = zeros({B, Hs, T, k.size(3)}), sum_.v = zeros({B, Hs, T, pass_.call.value_dim});
    sum_.key_bias = zeros({B, Hs, T});
  }

  void run() {
    for (std::int64_t c = 1; c < pass_.blocks(); ++c) add_local(c);
    if (pass_.has_far()) add_far();
    write();
  }

 private:
  RowGradient all_rows(const FavorArgs& args) const {
    const RowSums sums = pass_.rows().rows;
    const Tensor grad = pass_.slots.from_tokens(in_.grad_out.to(pass_.call.dtype));
    RowGradient rows;
    rows.grad = pass_.call.heads.split_queries(grad);
    if (!args.renormalize) {
      rows.delta = at::zeros_like(rows.grad.narrow(-1, 0, 1));
      rows.inverse = at::ones_like(sums.log2), rows.log2 = at::zeros_like(sums.log2);
      return rows;
    }
    const auto [mantissa, exponent] = at::frexp(sums.sums.select(-1, -1));
    const Tensor absent = mantissa.eq(0);  // a row without keys takes no part, in scales neither
    rows.inverse = mantissa.reciprocal().masked_fill(absent, 0);
    rows.log2 = (sums.log2 + exponent).masked_fill(absent, -kEmptyLog2Scale);
    const Tensor numerator = sums.sums.narrow(-1, 0, pass_.call.value_dim);
    const Tensor out = scale_pow2(numerator * rows.inverse.unsqueeze(-1), -exponent.unsqueeze(-1));
    rows.delta = (rows.grad * out).sum(-1, /*keepdim=*/true);
    return rows;
  }

  RowGradient rows_of(std::int64_t c) const {
    const auto part = [&, block = pass_.block(c)](const Tensor& t) {
      return t.narrow(3, block.start, block.length);
    };
    return {part(rows_.grad), part(rows_.delta), part(rows_.inverse), part(rows_.log2)};
  }

  // The rows as the far field's sums see them: divided by the query's own factor.
  RowGradient far_rows(std::int64_t c) const {
    RowGradient rows = rows_of(c);
    const Tensor own = pass_.far_log2(c), whole = round_up_log2(own);
    rows.inverse = rows.inverse * at::exp2(own - whole);
    rows.log2 = rows.log2 - whole;
    return rows;
  }

  void add_local(std::int64_t c) {
    const LocalKeys keys = pass_.local_keys(c);
    const LocalScores scores(pass_.raw_queries(c), keys, pass_.call.query.scale);
    const RowGradient rows = rows_of(c);
    const auto g = scores.backward(rows.grad, rows.delta, rows.inverse, rows.log2);
    const auto [start, length] = pass_.local_slots(c);
    sum_.q.narrow(3, pass_.block(c).start, pass_.block(c).length).add_(g.q);
    sum_.k.narrow(2, start, length).add_(g.keys);
    sum_.v.narrow(2, start, length).add_(g.values);
    if (keys.bias.defined()) sum_.key_bias.narrow(2, start, length).add_(g.bias);
  }

  void add_far_queries(std::int64_t c, const ScaledSum& keys) {
    const auto [start, length] = pass_.block(c);
    const FeatureBlock queries = pass_.call.load_queries({start, length});
    const RowGradient rows = far_rows(c);
    const StateGradient from_state(queries, rows, keys);
    const Tensor mass =
        (from_state.weights * from_state.normalizer).sum(-1) * from_state.inverse.squeeze(-1);
    const Tensor own = from_state.delta().squeeze(-1) - rows.delta.squeeze(-1) * mass;
    sum_.query_factor.narrow(3, start, length).add_(own);
    const auto g =
        pull_back_queries(pass_.call, out_, queries, from_state.pull_back(queries, rows.delta));
    sum_.q.narrow(3, start, length).add_(g.x);
  }

  void add_far_keys(std::int64_t c, const ScaledSum& rows) {
    const auto [start, length] = pass_.block(c);
    const KeyBlock keys = pass_.call.load_keys({start, length});
    const KeyGradient grad = key_gradient_from_later(keys, rows);
    const auto g = pull_back_keys(pass_.call, out_, keys, grad);
    sum_.k.narrow(2, start, length).add_(g.x);
    sum_.v.narrow(2, start, length).add_(grad.values);
    if (pass_.call.args.key_bias.defined()) {
      sum_.key_bias.narrow(2, start, length).add_(g.token_bias);
    }
  }

  void add_far() {
    const auto use_keys = [&](std::int64_t c, const ScaledSum& sum) {
      if (c > 0) add_far_queries(c, sum);
    };
    const auto add_rows = [&](std::int64_t c) {
      return sum_queries(pass_.call.load_queries(pass_.block(c)), far_rows(c));
    };
    pass_.scan_up(
        pass_.call.initial_sum(), [&](std::int64_t c) { return pass_.sum_joining_block(c); },
        use_keys);
    if (!pass_.call.args.causal) {
      pass_.scan_down(
          pass_.no_sum(), [&](std::int64_t c) { return pass_.sum_block(c); }, use_keys);
      pass_.scan_up(
          pass_.no_sum(), [&](std::int64_t c) { return c == 0 ? pass_.no_sum() : add_rows(c); },
          [&](std::int64_t c, const ScaledSum& sum) { add_far_keys(c, sum); });
    }
    // The final state holds the keys that left its near field.
    const ScaledSum final = final_gradient(pass_.call, in_);
    ScaledSum all =
        pass_.scan_down(pass_.no_sum(), add_rows, [&](std::int64_t c, const ScaledSum& sum) {
          add_far_keys(c, merge(sum, joined(final, c)));
        });
    all = merge(all, add_rows(1));
    write_state_gradient(pass_.call, out_, merge(all, final), final);
  }

  ScaledSum joined(const ScaledSum& final, std::int64_t c) const {
    const Tensor stays = pass_.slots.joins(c).logical_not().view({-1, 1, 1});
    return {final.sum.masked_fill(stays.unsqueeze(-1), 0),
            final.log2.masked_fill(stays, static_cast<double>(kEmptyLog2Scale))};
  }

  void write();
  void add_final_near();
  void write_queries();
  void write_bias();

  NearPass pass_;
  const BackwardInputs& in_;
  const BackwardOutputs& out_;
  RowGradient rows_;
  TokenGradients sum_;
};

// The final state's near field holds keys and values as they are.
void Backward::add_final_near() {
  const auto add = [&](Tensor& to, const Tensor& grad) {
    if (grad.defined()) to = to + pass_.slots.from_final(grad);
  };
  sum_.k = pass_.call.heads.reduce_keys(sum_.k);
  sum_.v = pass_.call.heads.reduce_keys(sum_.v);
  const Tensor removed = pass_.real().logical_not().unsqueeze(1);
  add(sum_.k, in_.grad_near_keys), add(sum_.v, in_.grad_near_values);
  add(sum_.key_bias, in_.grad_near_bias);
  sum_.k.masked_fill_(removed.unsqueeze(-1), 0), sum_.v.masked_fill_(removed.unsqueeze(-1), 0);
  sum_.key_bias.masked_fill_(removed, 0);
}

void Backward::write_queries() {
  const auto& call = pass_.call;
  const double slope = pass_.norm_sign() * call.query.scale;
  const Tensor q = call.heads.split_queries(call.args.q);
  const Tensor total = sum_.q + slope * sum_.query_factor.unsqueeze(-1) * q;
  out_.q.copy_(pass_.slots.to_tokens(call.heads.join_queries(total)));
  if (!out_.query_bias.defined()) return;
  const Tensor factor = pass_.slots.to_tokens(call.heads.join_queries(sum_.query_factor));
  const auto heads = out_.query_bias.size(1);
  out_.query_bias.copy_(factor.unflatten(1, {heads, factor.size(1) / heads}).sum(2));
}

void Backward::write_bias() {
  if (out_.key_bias.defined()) {
    const Tensor bias = pass_.slots.to_tokens(sum_.key_bias);  // [B, Hs, L]
    const auto heads = out_.key_bias.size(1);
    out_.key_bias.copy_(bias.unflatten(1, {heads, bias.size(1) / heads}).sum(2));
  }
  if (out_.state_near_bias.defined()) {
    out_.state_near_bias.copy_(pass_.slots.to_state(sum_.key_bias));
  }
}

void Backward::write() {
  add_final_near();
  write_queries();
  out_.k.copy_(pass_.slots.to_tokens(sum_.k));
  out_.v.copy_(pass_.slots.to_tokens(sum_.v));
  if (out_.state_near_keys.defined()) out_.state_near_keys.copy_(pass_.slots.to_state(sum_.k));
  if (out_.state_near_values.defined()) out_.state_near_values.copy_(pass_.slots.to_state(sum_.v));
  write_bias();
}

}  // namespace

void near_backward(const FavorArgs& args, const BackwardInputs& inputs,
                   const BackwardOutputs& outputs) {
  Backward(args, inputs, outputs).run();
}

}  // namespace performer::composed
