#include "performer/ops/backends/composed/backward.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "performer/ops/backends/composed/chunk.h"
#include "performer/ops/backends/composed/chunk_gradient.h"
#include "performer/ops/backends/composed/exact_rows.h"
#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/favor/state.h"

// With p_ir = phi_r(q_i) / den_i and G_i = [do_i, -do_i . o_i] (paper, Algorithm 1,
// differentiated):
//   d log phi_r(q_i) = p_ir  S_i,r . G_i             S_i  = sum_{j<=i} phi(k_j) [v_j, 1]
//   d log phi_r(k_j) = phi_r(k_j)  dS_j,r . [v_j, 1]   dS_j = sum_{i>=j} p_i G_i
//   d v_j            = phi(k_j) . dS_j
// S is scanned forwards for q, dS backwards for k and v; inside a chunk both are products of C x C.
// do_i . o_i is formed again from the weights at hand: a stored o would bring its rounding to bf16.
// Without renormalisation den = 1 and G_i = [do_i, 0].
namespace performer::composed {
namespace {

FeatureGradient query_gradient(const FeatureBlock& queries, const ScaledSum& state,
                               RowGradient& rows, bool renormalize) {
  const StateGradient from_state(queries, rows, state);
  if (renormalize) rows.delta = from_state.delta();
  return from_state.pull_back(queries, rows.delta);
}

// A chunk's queries look at the state and at the chunk's own keys.
FeatureGradient causal_query_gradient(const FeatureBlock& queries, const KeyBlock& keys,
                                      const ScaledSum& state, RowGradient& rows, bool renormalize) {
  const StateGradient from_state(queries, rows, state);
  const ChunkGradient chunk(queries, keys, rows, state.log2);
  if (renormalize) {
    rows.delta = from_state.delta() + (chunk.weights * chunk.values).sum(-1, /*keepdim=*/true);
    for (const auto row : chunk.exact_rows) {
      const Tensor weights = chunk.exact_weights(queries, keys, rows, row).sum(-1);
      const Tensor values = chunk.values.select(3, row).narrow(-1, 0, row + 1);
      rows.delta.select(3, row).add_((weights * values).sum(-1, /*keepdim=*/true));
    }
  }
  const Tensor difference = chunk.values - rows.delta;
  FeatureGradient grad = from_state.pull_back(queries, rows.delta);
  grad.add(queries.pull_back(multiply_grouped(chunk.coefficient * difference, chunk.pair.k_hat),
                             chunk.pair.q_shift, chunk.pair.q_hat));
  for (const auto row : chunk.exact_rows) {
    const Tensor weights = chunk.exact_weights(queries, keys, rows, row);
    const Tensor of_row = difference.select(3, row).narrow(-1, 0, row + 1).unsqueeze(3);
    const Tensor exact = at::matmul(of_row, weights);  // [B, Hs, G, 1, M']
    grad.features.narrow(3, row, 1).add_(queries.chained(exact, row, 1));
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
  const Tensor difference = chunk.values - rows.delta;
  const Tensor raw = at::matmul(fold_group(chunk.coefficient * difference).transpose(-1, -2),
                                fold_group(pair.q_hat));
  grad.features.add(keys.features.pull_back(raw, pair.k_shift, pair.k_hat));
  grad.values =
      grad.values + at::matmul(fold_group(chunk.weights).transpose(-1, -2), fold_group(rows.grad));
  for (const auto row : chunk.exact_rows) {
    const Tensor exact = chunk.exact_weights(queries, keys, rows, row);
    const Tensor of_row = difference.select(3, row).narrow(-1, 0, row + 1).unsqueeze(-1);
    const Tensor from_row = (exact * of_row).sum(2);  // [B, Hs, i + 1, M']
    grad.features.features.narrow(2, 0, row + 1).add_(keys.features.chained(from_row, 0, row + 1));
    const Tensor row_out = rows.grad.select(3, row).unsqueeze(3);  // [B, Hs, G, 1, Dv]
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
  return {at::matmul(fold_group(p).transpose(-1, -2), fold_group(rows.g())), log2};
}

// Sums the gradient of a parameter over batch and length, then to the parameter's heads.
void add_parameter(const Tensor& grad, const Tensor& per_head) {
  grad.add_(reduce_heads(per_head, grad.size(0)));
}

void write_query_gradient(const DenseCall& p, const BackwardOutputs& outputs,
                          const FeatureBlock& queries, const FeatureGradient& grad, Block block) {
  const auto g = p.query.backward(queries, grad);
  outputs.q.narrow(2, block.start, block.length).copy_(p.heads.join_queries(g.x));
  if (outputs.projection.defined()) {
    const Tensor dw = at::matmul(g.argument.transpose(-1, -2), queries.x).sum(0);  // [Hs, G, M, D]
    add_parameter(outputs.projection, dw.flatten(0, 1) * std::sqrt(p.query.scale));
  }
  if (outputs.bias_q.defined())
    add_parameter(outputs.bias_q, grad.features.sum(at::IntArrayRef{0, 3}).flatten(0, 1));
}

void write_key_gradient(const DenseCall& p, const BackwardOutputs& outputs, const KeyBlock& keys,
                        const KeyGradient& grad, Block block) {
  const auto g = p.key.backward(keys.features, grad.features);
  outputs.k.narrow(2, block.start, block.length).copy_(p.heads.reduce_keys(g.x));
  outputs.v.narrow(2, block.start, block.length).copy_(p.heads.reduce_keys(grad.values));
  const Tensor& dw_target =
      p.args.projection_k.defined() ? outputs.projection_k : outputs.projection;
  if (dw_target.defined()) {
    const Tensor dw = at::matmul(g.argument.transpose(-1, -2), keys.features.x).sum(0);
    add_parameter(dw_target, dw * std::sqrt(p.key.scale));
  }
  if (outputs.bias_k.defined())
    add_parameter(outputs.bias_k, grad.features.features.sum(at::IntArrayRef{0, 2}));
  if (outputs.key_bias.defined()) {
    const Tensor per_head = g.token_bias.transpose(0, 1);  // [Hs, B, C]
    outputs.key_bias.narrow(2, block.start, block.length)
        .copy_(reduce_heads(per_head, outputs.key_bias.size(1)).transpose(0, 1));
  }
}

ScaledSum final_state(const DenseCall& p, const BackwardInputs& in) {
  return {at::cat({in.kv, in.normalizer.unsqueeze(-1)}, -1), in.log2_scale.to(p.dtype)};
}

/// The gradient that comes in through the final state: dS = [grad kv, grad normalizer]
/// 2^-log2_scale.
ScaledSum final_gradient(const DenseCall& p, const BackwardInputs& in) {
  ScaledSum empty =
      empty_sum({in.kv.size(0), in.kv.size(1), in.kv.size(2), p.value_dim + 1}, in.kv.options());
  if (!in.grad_kv.defined() && !in.grad_normalizer.defined()) return empty;
  const Tensor kv = in.grad_kv.defined() ? in.grad_kv : at::zeros_like(in.kv);
  const Tensor normalizer =
      in.grad_normalizer.defined() ? in.grad_normalizer : at::zeros_like(in.normalizer);
  const Tensor log2 = in.log2_scale.to(p.dtype);
  const Tensor reached = log2.gt(kReached);
  return {at::cat({kv, normalizer.unsqueeze(-1)}, -1), at::where(reached, -log2, empty.log2)};
}

void write_state_gradient(const DenseCall& p, const BackwardOutputs& outputs, const ScaledSum& grad,
                          const ScaledSum& passed) {
  if (!outputs.state_kv.defined()) return;
  const Tensor initial = p.args.state_log2_scale.to(p.dtype);
  // A feature that no key ever reached hands the gradient through at scale 1.
  const Tensor untouched = initial.le(kReached);
  const Tensor shift = (grad.log2 + initial).masked_fill(untouched, kEmptyLog2Scale);
  Tensor total = scale_pow2(grad.sum, shift.unsqueeze(-1));
  const Tensor through = untouched.logical_and(passed.log2.le(kReached));
  total = at::where(through.unsqueeze(-1), passed.sum, total);
  outputs.state_kv.copy_(total.narrow(-1, 0, p.value_dim));
  outputs.state_normalizer.copy_(total.select(-1, -1));
}

ScaledSum causal_pass(const DenseCall& p, const BackwardInputs& in,
                      const BackwardOutputs& outputs) {
  const Tensor delta = at::zeros_like(in.row_sum);
  const auto blocks = split_blocks(p.key_length(), kChunk);
  ScaledSum state = p.initial_sum();
  for (const Block block : blocks) {
    const KeyBlock keys = p.load_keys(block);
    const FeatureBlock queries = p.load_queries(block);
    RowGradient rows = load_rows(p, in, delta, block);
    const auto grad = causal_query_gradient(queries, keys, state, rows, p.args.renormalize);
    write_query_gradient(p, outputs, queries, grad, block);
    if (p.args.renormalize) {
      delta.narrow(2, block.start, block.length)
          .copy_(p.heads.join_queries(rows.delta.squeeze(-1)));
    }
    state = merge(state, sum_keys(keys));
  }
  ScaledSum later = final_gradient(p, in);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const KeyBlock keys = p.load_keys(*block);
    const FeatureBlock queries = p.load_queries(*block);
    const RowGradient rows = load_rows(p, in, delta, *block);
    KeyGradient grad = key_gradient_from_later(keys, later);
    add_key_gradient_in_chunk(grad, queries, keys, rows);
    write_key_gradient(p, outputs, keys, grad, *block);
    later = merge(later, sum_queries(queries, rows));
  }
  return later;
}

ScaledSum bidirectional_pass(const DenseCall& p, const BackwardInputs& in,
                             const BackwardOutputs& outputs) {
  const Tensor delta = at::zeros_like(in.row_sum);
  const ScaledSum state = final_state(p, in);
  ScaledSum later = final_gradient(p, in);
  for (const Block block : split_blocks(p.query_length(), p.block_length())) {
    const FeatureBlock queries = p.load_queries(block);
    RowGradient rows = load_rows(p, in, delta, block);
    const auto grad = query_gradient(queries, state, rows, p.args.renormalize);
    write_query_gradient(p, outputs, queries, grad, block);
    later = merge(later, sum_queries(queries, rows));
  }
  for (const Block block : split_blocks(p.key_length(), p.block_length())) {
    const KeyBlock keys = p.load_keys(block);
    write_key_gradient(p, outputs, keys, key_gradient_from_later(keys, later), block);
  }
  return later;
}

}  // namespace

void backward(const DenseCall& p, const BackwardInputs& in, const BackwardOutputs& outputs) {
  const ScaledSum grad =
      p.args.causal ? causal_pass(p, in, outputs) : bidirectional_pass(p, in, outputs);
  write_state_gradient(p, outputs, grad, final_gradient(p, in));
}

}  // namespace performer::composed
