#include "performer/ops/backends/composed/backward.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/chunk.h"
#include "performer/ops/backends/composed/chunk_gradient.h"
#include "performer/ops/backends/composed/exact_rows.h"
#include "performer/ops/backends/composed/parameter_gradient.h"
#include "performer/ops/backends/composed/state_gradient.h"

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

void write_query_gradient(const DenseCall& p, const BackwardOutputs& outputs,
                          const FeatureBlock& queries, const FeatureGradient& grad, Block block) {
  const auto g = pull_back_queries(p, outputs, queries, grad);
  outputs.q.narrow(2, block.start, block.length).copy_(p.heads.join_queries(g.x));
}

void write_key_gradient(const DenseCall& p, const BackwardOutputs& outputs, const KeyBlock& keys,
                        const KeyGradient& grad, Block block) {
  const auto g = pull_back_keys(p, outputs, keys, grad);
  outputs.k.narrow(2, block.start, block.length).copy_(p.heads.reduce_keys(g.x));
  outputs.v.narrow(2, block.start, block.length).copy_(p.heads.reduce_keys(grad.values));
  if (outputs.key_bias.defined()) {
    const Tensor per_head = g.token_bias.transpose(0, 1);  // [Hs, B, C]
    outputs.key_bias.narrow(2, block.start, block.length)
        .copy_(reduce_heads(per_head, outputs.key_bias.size(1)).transpose(0, 1));
  }
}

ScaledSum final_state(const DenseCall& p, const BackwardInputs& in) {
  return {at::cat({in.kv, in.normalizer.unsqueeze(-1)}, -1), in.log2_scale.to(p.dtype)};
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
