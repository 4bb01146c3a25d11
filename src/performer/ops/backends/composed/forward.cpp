#include "performer/ops/backends/composed/forward.h"

#include <ATen/ATen.h>

#include <limits>

#include "performer/ops/backends/composed/chunk.h"
#include "performer/ops/backends/composed/pow2.h"

namespace performer::composed {
namespace {

void write_rows(const DenseCall& p, const ForwardOutputs& outputs, const RowSums& rows,
                Block block) {
  outputs.out.narrow(2, block.start, block.length)
      .copy_(p.heads.join_queries(divide_rows(p, rows)));
  outputs.row_sum.narrow(2, block.start, block.length)
      .copy_(p.heads.join_queries(rows.sums.select(-1, -1)));
  outputs.row_log2_scale.narrow(2, block.start, block.length)
      .copy_(p.heads.join_queries(rows.log2));
}

ScaledSum causal_pass(const DenseCall& p, const ForwardOutputs& outputs) {
  ScaledSum state = p.initial_sum();
  for (const Block block : split_blocks(p.key_length(), kChunk)) {
    const KeyBlock keys = p.load_keys(block);
    write_rows(p, outputs, attend_chunk(p.load_queries(block), keys, state), block);
    state = merge(state, sum_keys(keys));
  }
  return state;
}

ScaledSum bidirectional_pass(const DenseCall& p, const ForwardOutputs& outputs) {
  ScaledSum state = p.initial_sum();
  for (const Block block : split_blocks(p.key_length(), p.block_length())) {
    state = merge(state, sum_keys(p.load_keys(block)));
  }
  for (const Block block : split_blocks(p.query_length(), p.block_length())) {
    write_rows(p, outputs, attend_state(p.load_queries(block), state), block);
  }
  return state;
}

}  // namespace

Tensor divide_rows(const DenseCall& p, const RowSums& rows) {
  const Tensor numerator = rows.sums.narrow(-1, 0, p.value_dim);
  if (!p.args.renormalize) {
    return scale_pow2(numerator, rows.log2.unsqueeze(-1)) * p.map_constant;
  }
  const Tensor denominator = rows.sums.select(-1, -1);
  const Tensor zero = denominator.eq(0);
  Tensor out = (numerator / denominator.unsqueeze(-1)).masked_fill(zero.unsqueeze(-1), 0);
  if (!has_log_features(p.args.map())) return out;
  // Exponential features never sum to 0: these left the range of the scales.
  const Tensor lost = zero.logical_and(rows.reached).unsqueeze(-1);
  return out.masked_fill(lost, std::numeric_limits<double>::quiet_NaN());
}

void forward(const DenseCall& p, const ForwardOutputs& outputs) {
  const ScaledSum state = p.args.causal ? causal_pass(p, outputs) : bidirectional_pass(p, outputs);
  outputs.kv.copy_(state.sum.narrow(-1, 0, p.value_dim));
  outputs.normalizer.copy_(state.sum.select(-1, -1));
  outputs.log2_scale.copy_(state.log2);
}

}  // namespace performer::composed
