#include "performer/ops/backends/composed/chunk_gradient.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/exact_rows.h"
#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/favor/state.h"

namespace performer::composed {
namespace {

// A coefficient above 2^64 times a product that lost terms below 2^-126 would be seen.
constexpr double kExactAbove = 64;

}  // namespace

Tensor RowGradient::g() const { return at::cat({grad, -delta}, -1); }

RowGradient load_rows(const DenseCall& p, const BackwardInputs& in, const Tensor& delta,
                      Block block) {
  const auto load = [&](const Tensor& t) {
    return p.heads.split_queries(t.narrow(2, block.start, block.length)).to(p.dtype);
  };
  RowGradient rows;
  rows.grad = load(in.grad_out);
  rows.delta = load(delta).unsqueeze(-1);
  const Tensor sum = load(in.row_sum);
  if (!p.args.renormalize) {
    rows.inverse = at::full_like(sum, p.map_constant);
    rows.log2 = at::zeros_like(sum);
    return rows;
  }
  const auto [mantissa, exponent] = at::frexp(sum);
  const Tensor absent = sum.eq(0);  // a row without keys takes no part, in scales neither
  rows.inverse = mantissa.reciprocal().masked_fill(absent, 0);
  rows.log2 = (load(in.row_log2_scale) + exponent).masked_fill(absent, -kEmptyLog2Scale);
  return rows;
}

StateGradient::StateGradient(const FeatureBlock& queries, const RowGradient& rows,
                             const ScaledSum& state)
    : shift(state.log2.unsqueeze(2).unsqueeze(2) - rows.log2.unsqueeze(-1)),
      weights(queries.scaled(shift)),
      inverse(rows.inverse.unsqueeze(-1)) {
  const auto value_dim = rows.grad.size(-1);
  values = multiply_grouped(rows.grad, state.sum.narrow(-1, 0, value_dim).transpose(-1, -2));
  normalizer = state.sum.select(-1, value_dim).unsqueeze(2).unsqueeze(2);
}

Tensor StateGradient::delta() const {
  return (weights * values).sum(-1, /*keepdim=*/true) * inverse;
}

FeatureGradient StateGradient::pull_back(const FeatureBlock& queries, const Tensor& delta) const {
  return queries.pull_back((values - delta * normalizer) * inverse, shift, weights);
}

ChunkGradient::ChunkGradient(const FeatureBlock& queries, const KeyBlock& keys,
                             const RowGradient& rows, const Tensor& prior_log2)
    : pair(queries, keys, prior_log2) {
  const Tensor row_log2 = pair.b - rows.log2;  // [B, Hs, G, C]
  const Tensor later = causal_mask(keys.values.size(2), pair.a.device()).logical_not();
  coefficient = scale_pow2(rows.inverse.unsqueeze(-1),
                           pair.a.unsqueeze(2).unsqueeze(3) + row_log2.unsqueeze(-1))
                    .masked_fill(later, 0);
  if (queries.log2.defined()) {
    exact = (pair.prefix.unsqueeze(2) + row_log2).gt(kExactAbove);
    if (exact.any().item<bool>()) {
      exact_rows = marked_rows(exact);
      coefficient = coefficient.masked_fill(exact.unsqueeze(-1), 0);
    }
  }
  weights = (pair.products() * coefficient).masked_fill(coefficient.eq(0), 0);
  const Tensor v = keys.values.narrow(-1, 0, rows.grad.size(-1));
  values = multiply_grouped(rows.grad, v.transpose(-1, -2)).masked_fill(later, 0);
}

Tensor ChunkGradient::exact_weights(const FeatureBlock& queries, const KeyBlock& keys,
                                    const RowGradient& rows, std::int64_t row) const {
  const auto at_row = [&](const Tensor& t) { return t.select(3, row).unsqueeze(-1).unsqueeze(-1); };
  return (row_weights(queries, keys, rows.log2.select(3, row), row) * at_row(rows.inverse))
      .masked_fill(at_row(exact).logical_not(), 0);
}

KeyGradient key_gradient_from_later(const KeyBlock& keys, const ScaledSum& later) {
  const Tensor shift = later.log2.unsqueeze(2);  // [B, Hs, 1, M']
  const Tensor phi = keys.features.scaled(shift);
  const Tensor raw = at::matmul(keys.values, later.sum.transpose(-1, -2));
  return {keys.features.pull_back(raw, shift, phi),
          at::matmul(phi, later.sum.narrow(-1, 0, later.sum.size(-1) - 1))};
}

ScaledSum sum_queries(const FeatureBlock& queries, const RowGradient& rows) {
  const Tensor row_log2 = rows.log2.unsqueeze(-1);
  Tensor log2 = round_up_log2(queries.bound() - row_log2).amax({2, 3});  // [B, Hs, 1|M']
  const Tensor p =
      queries.scaled(-row_log2 - log2.unsqueeze(2).unsqueeze(2)) * rows.inverse.unsqueeze(-1);
  log2 = log2.expand({log2.size(0), log2.size(1), p.size(-1)});
  return {at::matmul(fold_group(p).transpose(-1, -2), fold_group(rows.g())), log2};
}

Tensor multiply_grouped(const Tensor& rows, const Tensor& matrix) {
  return unfold_group(at::matmul(fold_group(rows), matrix), rows.size(2));
}

}  // namespace performer::composed
