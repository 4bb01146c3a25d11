#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// Where keys rarely tie (magnitude 100) few rows make the whole error, so it takes many rows to
/// compare two roundings.
OpCase problem(FeatureMap map, Causality causality, double magnitude) {
  OpCase c{.map = map, .causality = causality, .heads = 4, .key_heads = 4, .length = 100};
  c.batch = magnitude == 100 ? 16 : 2;
  c.dim = 64;
  c.features = 32;
  c.magnitude = magnitude;
  return c;
}

/// Twice what the unfused float32 evaluation of the same formula loses, and rounding.
double allowed(const Inputs& in, const Tensor& exact) {
  const Tensor unfused = oracle(in, {}, at::kFloat).out;
  return 2 * rms_error(unfused, exact) + 2e-6 * rms(in.v);
}

class AnyNorm : public ::testing::TestWithParam<std::tuple<FeatureMap, Causality, double>> {};

TEST_P(AnyNorm, IsFiniteAndAsGoodAsTheUnfusedFormula) {
  const auto [map, causality, magnitude] = GetParam();
  const Inputs in = make_inputs(problem(map, causality, magnitude));
  const Tensor out = favor_attention(in.q, in.k, in.v, in.W, in.options);
  ASSERT_TRUE(out.isfinite().all().item<bool>());
  const Tensor exact = oracle(in).out;
  const double error = rms_error(out, exact);
  RecordProperty("error", (std::ostringstream() << error / rms(in.v)).str());
  EXPECT_LE(error, allowed(in, exact));
}

TEST_P(AnyNorm, GradientsAreFinite) {
  const auto [map, causality, magnitude] = GetParam();
  const Inputs in = make_inputs(problem(map, causality, magnitude));
  for (const Tensor& grad : operator_gradients(in, at::ones_like(in.q), false)) {
    EXPECT_TRUE(grad.isfinite().all().item<bool>());
  }
}

TEST_P(AnyNorm, GradientsAreAsGoodAsThoseOfTheUnfusedFormula) {
  const auto [map, causality, magnitude] = GetParam();
  OpCase c = problem(map, causality, magnitude);
  c.batch = 2;
  const Inputs in = make_inputs(c);
  const Tensor dout = make_inputs(c, 1).v, rows = at::arange(c.length);
  const auto got = operator_gradients(in, dout, false);
  const auto exact = oracle_gradients(in, dout, false, rows);
  const auto unfused = oracle_gradients(in, dout, false, rows, at::kFloat);
  for (std::size_t n = 0; n < 3; ++n) {
    const double floor = 2e-6 * std::max(rms(dout), rms(exact[n]));
    EXPECT_LE(rms_error(got[n], exact[n]), 3 * rms_error(unfused[n], exact[n]) + floor) << n;
  }
}

TEST_P(AnyNorm, OutlierTokensSpoilNoOther) {
  const auto [map, causality, magnitude] = GetParam();
  OpCase c = problem(map, causality, 1);
  c.key_bias = true;
  Inputs in = make_inputs(c);
  for (const std::int64_t token : {0, 17, 40, 70}) {
    in.q.select(2, token).mul_(magnitude);
    in.k.select(2, token + 1).mul_(magnitude);
    in.options.key_bias.select(2, token + 2).mul_(magnitude);
  }
  const Tensor out = favor_attention(in.q, in.k, in.v, in.W, in.options);
  const Tensor exact = oracle(in).out;
  EXPECT_LE(rms_error(out, exact), allowed(in, exact));
}

const auto name_of_case = [](const auto& info) {
  const auto [map, causality, magnitude] = info.param;
  return std::string(to_string(map)) + (causality == Causality::kCausal ? "_causal_" : "_both_") +
         std::to_string(static_cast<int>(magnitude));
};

INSTANTIATE_TEST_SUITE_P(
    Magnitudes, AnyNorm,
    ::testing::Combine(::testing::Values(FeatureMap::kPositive, FeatureMap::kHyperbolic,
                                         FeatureMap::kLoglinear),
                       ::testing::Values(Causality::kBidirectional, Causality::kCausal),
                       ::testing::Values(1.0, 10.0, 100.0, 1000.0)),
    name_of_case);

TEST(OneScaleRecipe, WithAnEpsilonViolatesTheBoundThatFavorAttentionKeeps) {
  for (const double magnitude : {10.0, 100.0, 1000.0}) {
    const Inputs in =
        make_inputs(problem(FeatureMap::kPositive, Causality::kBidirectional, magnitude));
    const Tensor exact = oracle(in).out;
    const Tensor out = reference::one_scale_favor_attention(in.q, in.k, in.v, in.W);
    const double error = rms_error(out, exact);
    EXPECT_FALSE(error <= allowed(in, exact)) << magnitude << ": " << error;
    EXPECT_GT(error, 0.1 * rms(in.v)) << "not a matter of rounding";
  }
}

}  // namespace
}  // namespace performer::testing
