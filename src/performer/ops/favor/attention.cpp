#include "performer/ops/favor/attention.h"

#include <ATen/ATen.h>

#include "performer/ops/favor/schema.h"

namespace performer {
std::pair<Tensor, FavorState> favor_attention_with_state(const Tensor& q, const Tensor& k,
                                                         const Tensor& v, const Tensor& W,
                                                         const FavorOptions& options) {
  TORCH_CHECK(q.defined() && k.defined() && v.defined(),
              "favor_attention: q, k and v must be defined tensors");
  const auto r = call_favor_attention(favor_args(q, k, v, W, options));
  return {r.out, result_state(r, options.near)};
}

Tensor favor_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                       const FavorOptions& options) {
  return favor_attention_with_state(q, k, v, W, options).first;
}

}  // namespace performer
