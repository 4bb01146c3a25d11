#include <ATen/ATen.h>

#include "performer/ops/reference/parts.h"

namespace performer::reference {

Attention packed_attention(const Inputs& in, const Evaluation& e) {
  const auto& o = e.options;
  const Tensor cu_q = o.cu_seqlens_q.cpu().to(at::kLong), cu_k = o.cu_seqlens_k.cpu().to(at::kLong);
  const Tensor rows = e.rows.defined() ? e.rows.cpu() : at::arange(in.q.size(2), at::kLong);
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
    one.options.query_bias = range(cu_q, o.query_bias, -1);
    if (auto& state = one.options.initial_state; state.defined()) {
      for (Tensor* t : {&state.kv, &state.normalizer, &state.log2_scale, &state.near_keys,
                        &state.near_values, &state.near_bias, &state.near_position}) {
        if (t->defined()) *t = t->narrow(0, n, 1);
      }
    }
    parts.push_back(favor_attention(range(cu_q, in.q, 2), range(cu_k, in.k, 2),
                                    range(cu_k, in.v, 2), in.W, one));
  }
  return concatenate(parts);
}

}  // namespace performer::reference
