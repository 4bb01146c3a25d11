#include <ATen/ATen.h>

#include "performer/ops/reference/parts.h"

namespace performer::reference {

// The gradient is that of the identity.
Tensor rounded(const Tensor& t, at::ScalarType dtype) {
  return t + (t.detach().to(dtype).to(t.scalar_type()) - t.detach());
}

// A product of two stored matrices of features; the query takes back the keys' scale.
Weights unfused_weights(const Features& x, const Keys& keys, const Tensor& shift,
                        const Tensor& key_scale, at::ScalarType dtype) {
  const Features& y = keys.features;
  const Tensor phi_x = rounded(x.value * (x.exponent + key_scale - shift).exp(), dtype);
  const Tensor phi_y = rounded(y.value * (y.exponent + y.token - key_scale).exp(), dtype);
  return {phi_x.matmul(phi_y.transpose(-1, -2)),
          phi_x.detach().abs().matmul(phi_y.detach().abs().transpose(-1, -2)),
          phi_x * (keys.state_exponent - key_scale).exp()};
}

void add_terms(Attention& a, const Weights& w, const Keys& keys, const Tensor& factor) {
  const Tensor abs_state = w.state.detach().abs();
  a.numerator_terms = (w.keys_terms.matmul(keys.v.detach().abs()) +
                       abs_state.matmul(keys.state_kv.detach().abs())) *
                      factor.detach();
  a.denominator_terms =
      ((w.keys_terms.sum(-1, true) + abs_state.matmul(keys.state_normalizer.detach().abs())) *
       factor.detach())
          .squeeze(-1);
}

}  // namespace performer::reference
