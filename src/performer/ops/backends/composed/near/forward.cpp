#include "performer/ops/backends/composed/near/forward.h"

#include <ATen/ATen.h>

#include <limits>

#include "performer/ops/backends/composed/near/pass.h"

namespace performer::composed {
namespace {

// The keys that the next token will see exactly.
void write_near_state(const NearPass& pass, const ForwardOutputs& outputs) {
  const FavorArgs& a = pass.call.args;
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  Tensor bias = at::zeros({a.q.size(0), pass.call.heads.state, pass.slots.count()}, a.q.options());
  if (a.key_bias.defined()) bias = bias + a.key_bias;
  bias = bias.masked_fill(a.key_mask.logical_not().unsqueeze(1), kNone);
  const Tensor here = pass.real().unsqueeze(1).unsqueeze(-1);  // [B, 1, T, 1]
  const auto kept = [&](const Tensor& t) {
    return pass.slots.to_final(t.masked_fill(here.logical_not(), 0), 0);
  };
  outputs.near_keys.copy_(kept(a.k));
  outputs.near_values.copy_(kept(a.v));
  outputs.near_bias.copy_(pass.slots.to_final(bias, kNone));
  outputs.near_position.copy_(pass.slots.final_position());
}

}  // namespace

void near_forward(const FavorArgs& args, const ForwardOutputs& outputs) {
  const NearPass pass(args);
  const auto [rows, state] = pass.rows();
  const auto write = [&](const Tensor& to, const Tensor& from) {
    to.copy_(pass.slots.to_tokens(pass.call.heads.join_queries(from)));
  };
  write(outputs.out, divide_rows(pass.call, rows));
  write(outputs.row_sum, rows.sums.select(-1, -1));
  write(outputs.row_log2_scale, rows.log2);
  outputs.kv.copy_(state.sum.narrow(-1, 0, pass.call.value_dim));
  outputs.normalizer.copy_(state.sum.select(-1, -1));
  outputs.log2_scale.copy_(state.log2);
  write_near_state(pass, outputs);
}

}  // namespace performer::composed
