#include "performer/ops/backends/composed/pow2.h"

#include <ATen/ATen.h>

#include "performer/ops/favor/state.h"

namespace performer::composed {

Tensor exact_exp2(const Tensor& e) {
  if (e.scalar_type() == at::kDouble) {
    return (e.clamp(-1023, 1024).to(at::kLong) + 1023).bitwise_left_shift(52).view(at::kDouble);
  }
  return (e.clamp(-127, 128).to(at::kInt) + 127).bitwise_left_shift(23).view(at::kFloat);
}

Tensor scale_pow2(const Tensor& x, const Tensor& e) {
  // Two half steps: each factor is finite, so that 0 * 2^e is never 0 * Inf.
  const double limit = e.scalar_type() == at::kDouble ? 2046 : 254;
  const Tensor bounded = e.clamp(-limit, limit);
  const Tensor half = (bounded * 0.5).trunc();
  return x * exact_exp2(half) * exact_exp2(bounded - half);
}

Tensor round_up_log2(const Tensor& log2) {
  constexpr double kBound = 1 << 28;
  return log2.ceil().clamp(-kBound, kBound).nan_to_num(kEmptyLog2Scale);
}

}  // namespace performer::composed
