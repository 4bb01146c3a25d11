#include "performer/ops/backends/composed/scaled_sum.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/favor/state.h"

namespace performer::composed {

ScaledSum merge(const ScaledSum& a, const ScaledSum& b) {
  const Tensor log2 = at::maximum(a.log2, b.log2);
  const Tensor from_a = exact_exp2(a.log2 - log2).unsqueeze(-1);
  const Tensor from_b = exact_exp2(b.log2 - log2).unsqueeze(-1);
  return {a.sum * from_a + b.sum * from_b, log2};
}

ScaledSum empty_sum(at::IntArrayRef shape, const at::TensorOptions& options) {
  return {at::zeros(shape, options), at::full(shape.slice(0, shape.size() - 1),
                                              static_cast<double>(kEmptyLog2Scale), options)};
}

}  // namespace performer::composed
