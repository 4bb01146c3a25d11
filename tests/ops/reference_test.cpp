#include "performer/ops/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// phi of one token in scalars, as the paper writes it.
std::vector<double> phi(const std::vector<double>& x, const Tensor& W, FeatureMap map) {
  const auto M = W.size(0);
  const auto w = W.accessor<double, 2>();
  double half_norm = 0;
  for (const double value : x) half_norm += value * value / 2;
  std::vector<double> features;
  const auto root = std::sqrt(static_cast<double>(M));
  const auto u = [&](std::int64_t r) {
    double sum = 0;
    for (std::size_t n = 0; n < x.size(); ++n) sum += w[r][n] * x[n];
    return sum;
  };
  for (std::int64_t r = 0; r < M; ++r) {
    if (map == FeatureMap::kPositive) features.push_back(std::exp(u(r) - half_norm) / root);
    if (map == FeatureMap::kTrigonometric)
      features.push_back(std::exp(half_norm) * std::sin(u(r)) / root);
    if (map == FeatureMap::kRelu) features.push_back(std::max(0.0, u(r)) + 1e-3);
  }
  if (map == FeatureMap::kTrigonometric) {
    for (std::int64_t r = 0; r < M; ++r)
      features.push_back(std::exp(half_norm) * std::cos(u(r)) / root);
  }
  return features;
}

TEST(Reference, IsTheFormulaWrittenOutInScalars) {
  for (const FeatureMap map :
       {FeatureMap::kPositive, FeatureMap::kTrigonometric, FeatureMap::kRelu}) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      OpCase c{.map = map,
               .causality = causality,
               .dtype = at::kDouble,
               .batch = 1,
               .heads = 1,
               .key_heads = 1,
               .length = 5,
               .dim = 3,
               .features = 4};
      const Inputs in = make_inputs(c);
      const auto exact = oracle(in);
      const double root_scale = map == FeatureMap::kRelu ? 1 : std::pow(3.0, -0.25);
      const auto token = [&](const Tensor& t, std::int64_t n) {
        const auto a = t.accessor<double, 4>();
        return std::vector<double>{a[0][0][n][0] * root_scale, a[0][0][n][1] * root_scale,
                                   a[0][0][n][2] * root_scale};
      };
      for (std::int64_t i = 0; i < 5; ++i) {
        double numerator = 0, denominator = 0;
        for (std::int64_t j = 0; j < (c.causal() ? i + 1 : 5); ++j) {
          const auto x = phi(token(in.q, i), in.W, map), y = phi(token(in.k, j), in.W, map);
          double weight = 0;
          for (std::size_t r = 0; r < x.size(); ++r) weight += x[r] * y[r];
          numerator += weight * in.v[0][0][j][1].item<double>();
          denominator += weight;
        }
        EXPECT_NEAR(exact.numerator[0][0][i][1].item<double>(), numerator, 1e-12);
        EXPECT_NEAR(exact.denominator[0][0][i].item<double>(), denominator, 1e-12);
        EXPECT_NEAR(exact.out[0][0][i][1].item<double>(), numerator / denominator, 1e-11);
      }
    }
  }
}

TEST(Reference, GradientsAgreeWithCentralDifferences) {
  for (const FeatureMap map : all_feature_maps()) {
    if (map == FeatureMap::kSgn) continue;  // a step function: differences see the steps
    OpCase c{.map = map,
             .causality = Causality::kCausal,
             .dtype = at::kDouble,
             .batch = 1,
             .length = 4,
             .dim = 2,
             .features = 3,
             .initial_state = true};
    c.key_bias = c.biases = takes_log_terms(map);
    Inputs in = make_inputs(c);
    // Rows of signed maps that divide by almost nothing have gradients too steep for differences.
    const auto exact = oracle(in);
    const Tensor condition = (exact.denominator / exact.denominator_terms).square().unsqueeze(-1);
    const Tensor dout = make_inputs(c, 1).v * condition;
    const auto loss = [&] { return (oracle(in).out * dout).sum().item<double>(); };
    const auto grads = oracle_gradients(in, dout, true, at::arange(4));
    const auto inputs = differentiable(in);
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      Tensor flat = inputs[n].second->view({-1});
      const Tensor grad = grads[n].reshape({-1});
      for (std::int64_t e = 0; e < flat.numel(); e += 3) {
        const double value = flat[e].item<double>(), step = 1e-6;
        if (!std::isfinite(value)) continue;
        flat[e] = value + step;
        const double above = loss();
        flat[e] = value - step;
        const double below = loss();
        flat[e] = value;
        const double slope = grad[e].item<double>();
        EXPECT_NEAR((above - below) / (2 * step), slope, 1e-5 * std::max(1.0, std::abs(slope)))
            << to_string(map) << " " << inputs[n].first << " " << e;
      }
    }
  }
}

TEST(Reference, ApproachesExactAttentionWithManyFeatures) {
  OpCase c{.dtype = at::kDouble,
           .length = 20,
           .dim = 4,
           .features = 4000,
           .mask = true,
           .magnitude = 0.5};
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    c.causality = causality;
    c.batch = 1;
    const Inputs in = make_inputs(c);
    const Tensor exact = reference::exact_attention(in.q, in.k, in.v, in.options);
    EXPECT_LE(rms_error(oracle(in).out, exact), 0.05 * rms(exact));
  }
}

TEST(Reference, ExactAttentionLeavesMaskedKeysOutAndGivesZeroWithoutKeys) {
  Inputs in = make_inputs({.dtype = at::kDouble, .mask = true});
  const Tensor out = reference::exact_attention(in.q, in.k, in.v, in.options);
  in.v = at::where(in.options.key_mask.view({2, 1, 65, 1}), in.v, std::nan(""));
  EXPECT_TRUE(bit_equal(reference::exact_attention(in.q, in.k, in.v, in.options), out));
  EXPECT_TRUE(out[1].eq(0).all().item<bool>());
  const Tensor score = (in.q[0][0][0] * in.k[0][0]).sum(-1) / std::sqrt(8.0);
  const Tensor weight = score.masked_fill(~in.options.key_mask[0], -1e30).softmax(0);
  EXPECT_LE(rms_error(out[0][0][0], weight.matmul(at::nan_to_num(in.v[0][0]))), 1e-14);
}

TEST(Reference, ChosenRowsAreThoseRowsOfTheWhole) {
  for (const bool packed : {false, true}) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      const Inputs in =
          make_inputs({.causality = causality, .dtype = at::kDouble, .batch = 1, .packed = packed});
      const Tensor rows = at::tensor({0, 20, 21, 22, 64}, at::kLong);
      EXPECT_LE(rms_error(oracle(in, rows).out, oracle(in).out.index_select(2, rows)), 1e-15);
    }
  }
}

TEST(Reference, UnfusedVersionLosesTheRoundingOfItsDtype) {
  OpCase c{.dtype = at::kDouble, .length = 100, .dim = 16, .features = 32};
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    c.causality = causality;
    const Inputs in = make_inputs(c);
    Inputs single = in;
    for (Tensor* t : {&single.q, &single.k, &single.v}) *t = t->to(at::kBFloat16);
    const Tensor exact = oracle(single).out;
    const double fp32 = rms_error(oracle(single, {}, at::kFloat).out, exact) / rms(in.v);
    const double fp16 = rms_error(oracle(single, {}, at::kHalf).out, exact) / rms(in.v);
    const double bf16 = rms_error(oracle(single, {}, at::kBFloat16).out, exact) / rms(in.v);
    EXPECT_GT(fp32, 1e-9);
    EXPECT_LT(fp32, 1e-6);
    EXPECT_GT(fp16, 1e-5);
    EXPECT_LT(fp16, 1e-3);
    EXPECT_GT(bf16, 3 * fp16);
    EXPECT_LT(bf16, 1e-2);
  }
}

TEST(CaseList, MeetsEveryPropertyInEveryDtype) {
  for (const auto dtype : case_dtypes()) {
    std::set<std::int64_t> lengths, dims;
    std::set<std::string> seen;
    for (const OpCase& c : op_cases()) {
      if (c.dtype != dtype) continue;
      lengths.insert(c.length);
      dims.insert(c.dim);
      const std::pair<bool, const char*> flags[] = {{c.mask, "mask"},
                                                    {c.key_bias, "key_bias"},
                                                    {c.biases, "biases"},
                                                    {c.key_projection, "key_projection"},
                                                    {c.packed, "packed"},
                                                    {c.strided, "strided"},
                                                    {c.initial_state, "initial_state"},
                                                    {c.keys() != c.length, "cross"},
                                                    {c.heads > c.key_heads, "grouped"},
                                                    {c.head_parameters > 1, "per head"},
                                                    {c.features == 0, "no projection"},
                                                    {c.features < c.dim, "m < d"},
                                                    {c.features == c.dim, "m = d"},
                                                    {c.features > c.dim, "m > d"}};
      for (const auto& [set, name] : flags) {
        if (set) seen.insert(name);
      }
    }
    EXPECT_EQ(lengths.size(), 8u) << dtype_name(dtype);
    EXPECT_EQ(dims.size(), 5u) << dtype_name(dtype);
    EXPECT_EQ(seen.size(), 14u) << dtype_name(dtype) << ::testing::PrintToString(seen);
  }
}

}  // namespace
}  // namespace performer::testing
