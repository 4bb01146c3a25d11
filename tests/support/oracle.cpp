#include "tests/support/oracle.h"

#include <cmath>
#include <set>

namespace performer::testing {
namespace {

constexpr std::int64_t kAllRows = 130;
constexpr std::int64_t kGradientBlock = 4;

Tensor wide(const Tensor& t) { return t.detach().to(at::kDouble); }

bool is_narrow(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

/// sqrt(mean((error / terms)^2)); where there are no terms the error itself must be 0.
double error_per_terms(const Tensor& got, const Tensor& want, const Tensor& terms) {
  const Tensor error = wide(got) - wide(want);
  return rms(at::where(terms > 0, error / terms, error * 1e300));
}

}  // namespace

double rms(const Tensor& t) {
  return t.numel() == 0 ? 0 : wide(t).square().mean().sqrt().item<double>();
}

double rms_error(const Tensor& got, const Tensor& want) { return rms(wide(got) - wide(want)); }

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const Tensor same = a.eq(b) & (a.eq(0).logical_not() | a.signbit().eq(b.signbit()));
  return (same | (a.isnan() & b.isnan())).all().item<bool>();
}

double error_bound(at::ScalarType dtype, std::int64_t length) {
  if (dtype == at::kDouble) return 1e-12;
  return length <= 4096 ? 2e-6 : 1e-5;
}

double epsilon(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::ldexp(1.0, -52);
    case at::kFloat:
      return std::ldexp(1.0, -23);
    case at::kHalf:
      return std::ldexp(1.0, -10);
    default:
      return std::ldexp(1.0, -7);
  }
}

Tensor sample_rows(std::int64_t length) {
  if (length <= kAllRows) return at::arange(length, at::kLong);
  std::set<std::int64_t> rows;
  for (const std::int64_t boundary : {0, 64, 128, 1024}) {
    for (const std::int64_t offset : {-1, 0, 1}) {
      const auto row = boundary + offset;
      if (row >= 0 && row < length) rows.insert(row);
    }
  }
  for (std::int64_t n = 1; n <= 8; ++n) rows.insert(length * n / 8 - 1);
  return at::tensor(std::vector<std::int64_t>(rows.begin(), rows.end()), at::kLong);
}

reference::Attention oracle(const Inputs& in, const Tensor& rows,
                            std::optional<at::ScalarType> unfused) {
  return reference::favor_attention(in.q, in.k, in.v, in.W,
                                    {.options = in.options, .unfused = unfused, .rows = rows});
}

double conditioned_error(const Tensor& got, const reference::Attention& exact) {
  const Tensor terms = exact.denominator_terms.unsqueeze(-1);
  const Tensor condition = exact.denominator.abs().unsqueeze(-1) / at::where(terms > 0, terms, 1.0);
  // Exact weights beyond the range of float64 outweigh whatever could cancel.
  return rms((wide(got) - exact.out) * condition.nan_to_num(1.0, 1.0, 1.0));
}

void expect_matches_definition(const OpCase& c, const Inputs& in, const Tensor& got,
                               const Tensor& rows) {
  const auto exact = oracle(in, rows);
  ASSERT_EQ(got.sizes(), exact.out.sizes());
  ASSERT_EQ(got.scalar_type(), c.dtype);
  const double bound = error_bound(c.dtype, std::max(c.length, c.keys()));
  const bool divided = c.renormalize == Renormalize::kYes;
  if (!is_narrow(c.dtype) && !divided) {
    EXPECT_LE(error_per_terms(got, exact.numerator, exact.numerator_terms), bound);
    return;
  }
  if (!is_narrow(c.dtype) && !has_signs(c.map)) {
    EXPECT_LE(rms_error(got, exact.out), bound * std::max(rms(in.v), rms(exact.out)));
    return;
  }
  const auto unfused = oracle(in, rows, c.dtype).out;
  const double floor = (c.dtype == at::kDouble ? 1e-12 : epsilon(at::kFloat)) * rms(in.v);
  if (divided) {
    EXPECT_LE(conditioned_error(got, exact), 2 * conditioned_error(unfused, exact) + floor);
  } else {
    const auto error = [&](const Tensor& t) {
      return error_per_terms(t, exact.numerator, exact.numerator_terms);
    };
    EXPECT_LE(error(got), 2 * error(unfused) + epsilon(at::kFloat));
  }
}

std::vector<std::pair<std::string, Tensor*>> differentiable(Inputs& in) {
  auto& o = in.options;
  std::vector<std::pair<std::string, Tensor*>> all{
      {"q", &in.q},
      {"k", &in.k},
      {"v", &in.v},
      {"W", &in.W},
      {"projection_k", &o.projection_k},
      {"bias_q", &o.bias_q},
      {"bias_k", &o.bias_k},
      {"key_bias", &o.key_bias},
      {"query_bias", &o.query_bias},
      {"initial_state.kv", &o.initial_state.kv},
      {"initial_state.normalizer", &o.initial_state.normalizer},
      {"initial_state.near_keys", &o.initial_state.near_keys},
      {"initial_state.near_values", &o.initial_state.near_values},
      {"initial_state.near_bias", &o.initial_state.near_bias}};
  std::erase_if(all, [](const auto& item) { return !item.second->defined(); });
  return all;
}

Inputs as_leaves(const Inputs& in, bool parameters, std::optional<at::ScalarType> dtype) {
  Inputs leaves = in;
  for (const auto& [name, t] : differentiable(leaves)) {
    const bool token = name == "q" || name == "k" || name == "v";
    *t = t->detach();
    if (token && dtype) *t = t->to(*dtype);
    if (token || parameters) t->requires_grad_();
  }
  return leaves;
}

namespace {

std::vector<Tensor> wanted(Inputs& leaves) {
  std::vector<Tensor> inputs;
  for (const auto& [name, t] : differentiable(leaves)) {
    if (t->requires_grad()) inputs.push_back(*t);
  }
  return inputs;
}

}  // namespace

std::vector<Tensor> gradients_of(const Tensor& out, const Tensor& dout,
                                 const std::vector<Tensor>& inputs) {
  auto grads = torch::autograd::grad({out}, inputs, {dout}, std::nullopt, false, true);
  for (std::size_t n = 0; n < grads.size(); ++n) {
    if (!grads[n].defined()) grads[n] = at::zeros_like(inputs[n]);
  }
  return grads;
}

std::vector<Tensor> operator_gradients(const Inputs& in, const Tensor& dout, bool parameters) {
  Inputs leaves = as_leaves(in, parameters);
  const Tensor out = favor_attention(leaves.q, leaves.k, leaves.v, leaves.W, leaves.options);
  return gradients_of(out, dout, wanted(leaves));
}

std::vector<Tensor> oracle_gradients(const Inputs& in, const Tensor& dout, bool parameters,
                                     const Tensor& rows, std::optional<at::ScalarType> unfused) {
  // Leaves wide enough that gradients are rounded once, at the end.
  const bool single = unfused && *unfused != at::kDouble;
  Inputs leaves = as_leaves(in, parameters, single ? at::kFloat : at::kDouble);
  const auto inputs = wanted(leaves);
  std::vector<Tensor> sums;
  for (const Tensor& input : inputs) sums.push_back(at::zeros_like(input));
  for (const Tensor& block : rows.split(kGradientBlock)) {
    if (block.numel() == 0) continue;
    const Tensor out = oracle(leaves, block, unfused).out;
    const Tensor dout_block = dout.index_select(2, block).to(out.scalar_type());
    const auto grads = gradients_of(out, dout_block, inputs);
    for (std::size_t n = 0; n < sums.size(); ++n) sums[n] += grads[n];
  }
  if (unfused) {
    for (std::size_t n = 0; n < 3; ++n) sums[n] = sums[n].to(*unfused);
  }
  return sums;
}

}  // namespace performer::testing
