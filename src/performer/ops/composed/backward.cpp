#include "performer/ops/composed/backward.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "performer/ops/composed/chunk.h"
#include "performer/ops/composed/exact_rows.h"
#include "performer/ops/composed/pow2.h"
#include "performer/ops/favor_state.h"

// With p_ir = phi_r(q_i) / den_i and G_i = [do_i, -do_i . o_i] (paper, Algorithm 1,
// differentiated):
//   d log phi_r(q_i) = p_ir  S_i,r . G_i             S_i  = sum_{j<=i} phi(k_j) [v_j, 1]
//   d log phi_r(k_j) = phi_r(k_j)  dS_j,r . [v_j, 1]   dS_j = sum_{i>=j} p_i G_i
//   d v_j            = phi(k_j) . dS_j
// S is scanned forwards for q, dS backwards for k and v; inside a chunk both are products of C x C.
// Without renormalisation den = 1 and G_i = [do_i, 0].
namespace performer::composed {
namespace {

/// Per query row of a block: the incoming gradient and the denominator as inverse 2^-log2.
struct RowGradient {
  Tensor g;        // [B, Hs, G, C, Dv + 1]
  Tensor inverse;  // [B, Hs, G, C]
  Tensor log2;     // [B, Hs, G, C] integers
};

RowGradient load_rows(const Problem& p, const BackwardInputs& in, std::int64_t start,
                      std::int64_t length) {
  const auto load = [&](const Tensor& t) {
    return p.heads.split_queries(t.narrow(2, start, length)).to(p.dtype);
  };
  const Tensor grad = load(in.grad_out);  // [B, Hs, G, C, Dv]
  const Tensor sum = load(in.row_sum);
  if (!p.args.renormalize) {
    return {at::cat({grad, at::zeros_like(sum).unsqueeze(-1)}, -1),
            at::full_like(sum, p.kernel_factor), at::zeros_like(sum)};
  }
  const Tensor along = (grad * load(in.out)).sum(-1, /*keepdim=*/true);
  const auto [mantissa, exponent] = at::frexp(sum);
  const Tensor absent = sum.eq(0);  // a row without keys takes no part, in scales neither
  return {at::cat({grad, -along}, -1), mantissa.reciprocal().masked_fill(absent, 0),
          (load(in.row_log2_scale) + exponent).masked_fill(absent, -kEmptyLog2Scale)};
}

/// The part of a chunk's attention that its own keys carry.
struct ChunkGradient {
  ChunkGradient(const FeatureBlock& queries, const KeyBlock& keys, const RowGradient& rows,
                const Tensor& prior_log2)
      : pair(queries, keys, prior_log2) {
    // weight_ij = phi(q_i) . phi(k_j) / den_i = products_ij coefficient_ij
    const Tensor row_log2 = pair.b - rows.log2;  // [B, Hs, G, C]
    const Tensor allowed = causal_mask(keys.values.size(2), pair.a.device());
    coefficient = scale_pow2(rows.inverse.unsqueeze(-1),
                             pair.a.unsqueeze(2).unsqueeze(3) + row_log2.unsqueeze(-1));
    coefficient = coefficient.masked_fill(allowed.logical_not(), 0);
    if (queries.log2.defined()) {  // rows beyond the range of the product go feature by feature
      exact = (pair.prefix.unsqueeze(2) + row_log2).gt(kExactAbove);
      any_exact = exact.any().item<bool>();
      if (any_exact) coefficient = coefficient.masked_fill(exact.unsqueeze(-1), 0);
    }
    along =
        unfold_group(at::matmul(fold_group(rows.g), keys.values.transpose(-1, -2)), pair.b.size(2))
            .masked_fill(allowed.logical_not(), 0);  // [B, Hs, G, C, C] G_i . [v_j, 1]
  }

  /// p_ir phi_r(k_j) of an exact row, 0 in the heads where the row is not: [B, Hs, G, i + 1, M'].
  Tensor exact_weights(const FeatureBlock& queries, const KeyBlock& keys, const RowGradient& rows,
                       std::int64_t row) const {
    const auto at_row = [&](const Tensor& t) {
      return t.select(3, row).unsqueeze(-1).unsqueeze(-1);
    };
    return (row_weights(queries, keys, rows.log2.select(3, row), row) * at_row(rows.inverse))
        .masked_fill(at_row(exact).logical_not(), 0);
  }

  static constexpr double kExactAbove = 64;
  ChunkPair pair;
  Tensor coefficient;  // [B, Hs, G, C, C]
  Tensor along;        // [B, Hs, G, C, C]
  Tensor exact;        // bool [B, Hs, G, C]
  bool any_exact = false;
};

FeatureGradient query_gradient_from_state(const FeatureBlock& queries, const RowGradient& rows,
                                          const ScaledSum& state) {
  const Tensor shift = state.log2.unsqueeze(2).unsqueeze(2) - rows.log2.unsqueeze(-1);
  const Tensor raw = unfold_group(at::matmul(fold_group(rows.g), state.sum.transpose(-1, -2)),
                                  rows.log2.size(2));  // [B, Hs, G, C, M']
  return queries.pull_back(raw * rows.inverse.unsqueeze(-1), shift, queries.scaled(shift));
}

FeatureGradient query_gradient_in_chunk(const FeatureBlock& queries, const KeyBlock& keys,
                                        const RowGradient& rows, const Tensor& prior_log2) {
  const ChunkGradient chunk(queries, keys, rows, prior_log2);
  const Tensor raw = unfold_group(
      at::matmul(fold_group(chunk.coefficient * chunk.along), chunk.pair.k_hat), rows.log2.size(2));
  FeatureGradient grad = queries.pull_back(raw, chunk.pair.q_shift, chunk.pair.q_hat);
  if (!chunk.any_exact) return grad;
  for (const auto row : marked_rows(chunk.exact)) {
    const Tensor weights = chunk.exact_weights(queries, keys, rows, row);
    const Tensor along = chunk.along.select(3, row).narrow(-1, 0, row + 1).unsqueeze(3);
    grad.features.select(3, row).add_(at::matmul(along, weights).squeeze(3));
  }
  return grad;
}

/// Gradients of a block of keys and of its values.
struct KeyGradient {
  FeatureGradient features;
  Tensor values;  // [B, Hs, C, Dv]
};

KeyGradient key_gradient_from_later(const KeyBlock& keys, const ScaledSum& later) {
  const Tensor shift = later.log2.unsqueeze(2);  // [B, Hs, 1, M']
  const Tensor phi = keys.features.scaled(shift);
  const Tensor raw = at::matmul(keys.values, later.sum.transpose(-1, -2));
  return {keys.features.pull_back(raw, shift, phi),
          at::matmul(phi, later.sum.narrow(-1, 0, later.sum.size(-1) - 1))};
}

void add_key_gradient_in_chunk(KeyGradient& grad, const FeatureBlock& queries, const KeyBlock& keys,
                               const RowGradient& rows) {
  // Only gradients are formed here, so that the keys' own scales may serve as reference.
  const Tensor own = keys.log2.amax(2).expand({-1, -1, queries.bound().size(-1)});
  const ChunkGradient chunk(queries, keys, rows, own);
  const auto& pair = chunk.pair;
  const Tensor grad_out = rows.g.narrow(-1, 0, rows.g.size(-1) - 1);
  const Tensor raw = at::matmul(fold_group(chunk.coefficient * chunk.along).transpose(-1, -2),
                                fold_group(pair.q_hat));
  grad.features.add(keys.features.pull_back(raw, pair.k_shift, pair.k_hat));
  const Tensor weights = at::where(chunk.coefficient.ne(0), pair.products() * chunk.coefficient,
                                   at::zeros({}, pair.a.options()));
  grad.values =
      grad.values + at::matmul(fold_group(weights).transpose(-1, -2), fold_group(grad_out));
  if (!chunk.any_exact) return;
  for (const auto row : marked_rows(chunk.exact)) {
    const Tensor exact = chunk.exact_weights(queries, keys, rows, row);
    const Tensor along = chunk.along.select(3, row).narrow(-1, 0, row + 1).unsqueeze(-1);
    grad.features.features.narrow(2, 0, row + 1).add_((exact * along).sum(2));
    const Tensor row_out = grad_out.select(3, row).unsqueeze(3);  // [B, Hs, G, 1, Dv]
    grad.values.narrow(2, 0, row + 1).add_((exact.sum(-1).unsqueeze(-1) * row_out).sum(2));
  }
}

/// sum_i p_i G_i of one block of queries, scaled per feature as a state is.
ScaledSum sum_queries(const FeatureBlock& queries, const RowGradient& rows) {
  const Tensor row_log2 = rows.log2.unsqueeze(-1);
  Tensor log2 = round_up_log2(queries.bound() - row_log2).amax({2, 3});  // [B, Hs, 1|M']
  const Tensor p =
      queries.scaled(-row_log2 - log2.unsqueeze(2).unsqueeze(2)) * rows.inverse.unsqueeze(-1);
  log2 = log2.expand({log2.size(0), log2.size(1), p.size(-1)});
  return {at::matmul(fold_group(p).transpose(-1, -2), fold_group(rows.g)), log2};
}

// Sums the gradient of a parameter over batch and length, then to the parameter's heads.
void add_parameter(const Tensor& grad, const Tensor& per_head) {
  grad.add_(reduce_heads(per_head, grad.size(0)));
}

void write_query_gradient(const Problem& p, const BackwardOutputs& outputs,
                          const FeatureBlock& queries, const FeatureGradient& grad,
                          std::int64_t start) {
  const auto g = p.query.backward(queries, grad);
  outputs.q.narrow(2, start, g.x.size(3)).copy_(p.heads.join_queries(g.x));
  if (outputs.projection.defined()) {
    const Tensor dw = at::matmul(g.argument.transpose(-1, -2), queries.x).sum(0);  // [Hs, G, M, D]
    add_parameter(outputs.projection, dw.flatten(0, 1) * std::sqrt(p.query.scale));
  }
  if (outputs.bias_q.defined())
    add_parameter(outputs.bias_q, grad.features.sum({0, 3}).flatten(0, 1));
}

void write_key_gradient(const Problem& p, const BackwardOutputs& outputs, const KeyBlock& keys,
                        const KeyGradient& grad, std::int64_t start) {
  const auto g = p.key.backward(keys.features, grad.features);
  const auto length = keys.values.size(2);
  outputs.k.narrow(2, start, length).copy_(p.heads.reduce_keys(g.x));
  outputs.v.narrow(2, start, length).copy_(p.heads.reduce_keys(grad.values));
  const Tensor& dw_target =
      p.args.projection_k.defined() ? outputs.projection_k : outputs.projection;
  if (dw_target.defined()) {
    const Tensor dw = at::matmul(g.argument.transpose(-1, -2), keys.features.x).sum(0);
    add_parameter(dw_target, dw * std::sqrt(p.key.scale));
  }
  if (outputs.bias_k.defined()) add_parameter(outputs.bias_k, grad.features.features.sum({0, 2}));
  if (outputs.key_bias.defined()) {
    const Tensor per_head = g.token_bias.transpose(0, 1);  // [Hs, B, C]
    outputs.key_bias.narrow(2, start, length)
        .copy_(reduce_heads(per_head, outputs.key_bias.size(1)).transpose(0, 1));
  }
}

ScaledSum final_state(const Problem& p, const BackwardInputs& in) {
  return {at::cat({in.kv, in.normalizer.unsqueeze(-1)}, -1), in.log2_scale.to(p.dtype)};
}

/// The gradient that comes in through the final state: dS = [grad kv, grad normalizer]
/// 2^-log2_scale.
ScaledSum final_gradient(const Problem& p, const BackwardInputs& in) {
  const ScaledSum empty =
      empty_sum({in.kv.size(0), in.kv.size(1), in.kv.size(2), p.value_dim + 1}, in.kv.options());
  if (!in.grad_kv.defined() && !in.grad_normalizer.defined()) return empty;
  const Tensor kv = in.grad_kv.defined() ? in.grad_kv : at::zeros_like(in.kv);
  const Tensor normalizer =
      in.grad_normalizer.defined() ? in.grad_normalizer : at::zeros_like(in.normalizer);
  const Tensor log2 = in.log2_scale.to(p.dtype);
  const Tensor reached = log2.gt(kEmptyLog2Scale / 2);
  return {at::cat({kv, normalizer.unsqueeze(-1)}, -1), at::where(reached, -log2, empty.log2)};
}

void write_state_gradient(const Problem& p, const BackwardOutputs& outputs, const ScaledSum& grad,
                          const ScaledSum& passed) {
  if (!outputs.state_kv.defined()) return;
  const Tensor initial = p.args.state_log2_scale.to(p.dtype);
  // A feature that no key ever reached hands the gradient through at scale 1.
  const Tensor untouched = initial.le(kEmptyLog2Scale / 2);
  const Tensor shift = (grad.log2 + initial).masked_fill(untouched, kEmptyLog2Scale);
  Tensor total = scale_pow2(grad.sum, shift.unsqueeze(-1));
  const Tensor through = untouched.logical_and(passed.log2.le(kEmptyLog2Scale / 2));
  total = at::where(through.unsqueeze(-1), passed.sum, total);
  outputs.state_kv.copy_(total.narrow(-1, 0, p.value_dim));
  outputs.state_normalizer.copy_(total.select(-1, -1));
}

ScaledSum causal_pass(const Problem& p, const BackwardInputs& in, const BackwardOutputs& outputs) {
  const auto chunks = (p.key_length() + kChunk - 1) / kChunk;
  ScaledSum state = p.initial_sum();
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto start = c * kChunk;
    const auto length = std::min(kChunk, p.key_length() - start);
    const KeyBlock keys = p.load_keys(start, length);
    const FeatureBlock queries = p.load_queries(start, length);
    const RowGradient rows = load_rows(p, in, start, length);
    FeatureGradient grad = query_gradient_from_state(queries, rows, state);
    grad.add(query_gradient_in_chunk(queries, keys, rows, state.log2));
    write_query_gradient(p, outputs, queries, grad, start);
    state = merge(state, sum_keys(keys));
  }
  ScaledSum later = final_gradient(p, in);
  for (std::int64_t c = chunks - 1; c >= 0; --c) {
    const auto start = c * kChunk;
    const auto length = std::min(kChunk, p.key_length() - start);
    const KeyBlock keys = p.load_keys(start, length);
    const FeatureBlock queries = p.load_queries(start, length);
    const RowGradient rows = load_rows(p, in, start, length);
    KeyGradient grad = key_gradient_from_later(keys, later);
    add_key_gradient_in_chunk(grad, queries, keys, rows);
    write_key_gradient(p, outputs, keys, grad, start);
    later = merge(later, sum_queries(queries, rows));
  }
  return later;
}

ScaledSum bidirectional_pass(const Problem& p, const BackwardInputs& in,
                             const BackwardOutputs& outputs) {
  const auto block = p.block_length();
  const ScaledSum state = final_state(p, in);
  ScaledSum later = final_gradient(p, in);
  for (std::int64_t start = 0; start < p.query_length(); start += block) {
    const auto length = std::min(block, p.query_length() - start);
    const FeatureBlock queries = p.load_queries(start, length);
    const RowGradient rows = load_rows(p, in, start, length);
    write_query_gradient(p, outputs, queries, query_gradient_from_state(queries, rows, state),
                         start);
    later = merge(later, sum_queries(queries, rows));
  }
  for (std::int64_t start = 0; start < p.key_length(); start += block) {
    const KeyBlock keys = p.load_keys(start, std::min(block, p.key_length() - start));
    write_key_gradient(p, outputs, keys, key_gradient_from_later(keys, later), start);
  }
  return later;
}

}  // namespace

void backward(const Problem& p, const BackwardInputs& in, const BackwardOutputs& outputs) {
  const ScaledSum grad =
      p.args.causal ? causal_pass(p, in, outputs) : bidirectional_pass(p, in, outputs);
  write_state_gradient(p, outputs, grad, final_gradient(p, in));
}

}  // namespace performer::composed
