#include "performer/ops/backends/composed/near/local.h"

#include <ATen/ATen.h>

#include <limits>

#include "performer/ops/backends/composed/chunk_gradient.h"
#include "performer/ops/backends/composed/pow2.h"

namespace performer::composed {
namespace {

// Values that are not finite reach the causal rows from their own on, and no earlier row; in their
// own column. 0 in all other places.
Tensor nonfinite_sums(const Tensor& values, std::int64_t before) {
  const Tensor sums = values.masked_fill(at::isfinite(values), 0).cumsum(2);
  return sums.narrow(2, before, sums.size(2) - before).unsqueeze(2);  // [B, Hs, 1, C, Dv + 1]
}

}  // namespace

LocalScores::LocalScores(const Tensor& q, const LocalKeys& keys, double scale)
    : q_(q), keys_(keys), scale_(scale) {
  const auto count = keys.x.size(2);
  seen_ = keys.mask.unsqueeze(2).unsqueeze(2);
  if (keys.before >= 0) {
    const auto index = [&](std::int64_t n) {
      return at::arange(n, seen_.options().dtype(at::kLong));
    };
    seen_ = seen_.logical_and(index(count).le(index(q.size(3)).unsqueeze(-1) + keys.before));
  }
  log2_ = multiply_grouped(q, keys.x.transpose(-1, -2)) * (scale * kLog2E);
  if (keys.bias.defined()) log2_ = log2_ + (keys.bias * kLog2E).unsqueeze(2).unsqueeze(2);
  log2_ = log2_.masked_fill(seen_.logical_not(), -std::numeric_limits<double>::infinity());
}

RowSums LocalScores::sums() const {
  const Tensor top = log2_.amax(-1);
  const Tensor log2 = round_up_log2(top);
  const Tensor weights = at::exp2(log2_ - log2.unsqueeze(-1));
  const Tensor reached = seen_.any(-1);
  if (keys_.before < 0) return {multiply_grouped(weights, keys_.values), log2, reached};
  const Tensor finite = at::isfinite(keys_.values);
  const Tensor held = keys_.values.masked_fill(finite.logical_not(), 0);
  const Tensor extra = nonfinite_sums(keys_.values, keys_.before);
  const Tensor sums = multiply_grouped(weights, held);
  return {at::where(extra.ne(0), sums + extra, sums), log2, reached};
}

LocalScores::Gradients LocalScores::backward(const Tensor& grad, const Tensor& delta,
                                             const Tensor& inverse, const Tensor& log2) const {
  const Tensor v = keys_.values.narrow(-1, 0, grad.size(-1));
  const Tensor p = at::exp2(log2_ - log2.unsqueeze(-1)) * inverse.unsqueeze(-1);
  const Tensor difference = multiply_grouped(grad, v.transpose(-1, -2)) - delta;
  const Tensor d_score = (p * difference).masked_fill(seen_.logical_not(), 0);
  const auto over_rows = [](const Tensor& weights, const Tensor& rows) {
    return at::matmul(fold_group(weights).transpose(-1, -2), fold_group(rows));
  };
  return {multiply_grouped(d_score, keys_.x) * scale_, over_rows(d_score, q_) * scale_,
          over_rows(p, grad), d_score.sum(at::IntArrayRef{2, 3})};
}

}  // namespace performer::composed
