#include <ATen/ATen.h>

#include <numbers>

#include "performer/ops/reference/parts.h"

namespace performer::reference {

void add_state(Keys& keys, const FavorState& state, const Tensor& q) {
  const auto B = q.size(0), H = q.size(1);
  const auto M = keys.features.value.size(-1), Dv = keys.v.size(-1);
  const auto of_state = [&](const Tensor& t) { return spread_heads(t.to(q.scalar_type()), 1, H); };
  keys.state_kv = state.defined() ? of_state(state.kv) : at::zeros({B, H, M, Dv}, q.options());
  keys.state_normalizer = state.defined() ? of_state(state.normalizer).unsqueeze(-1)
                                          : at::zeros({B, H, M, 1}, q.options());
  const Tensor log2_scale = state.defined() ? of_state(state.log2_scale)
                                            : at::full({B, H, M}, kEmptyLog2Scale, q.options());
  keys.state_exponent = log2_scale.unsqueeze(-2) * std::numbers::ln2;
}

}  // namespace performer::reference
