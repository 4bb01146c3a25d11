#include <gtest/gtest.h>

#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// The rows whose outputs the loss reads: all of a short sequence, few of a long one.
Tensor loss_rows(std::int64_t length) {
  const Tensor rows = sample_rows(length);
  return length <= 65 ? rows : rows.slice(0, 0, rows.numel(), 5);
}

/// dout of a random linear loss. Rows of signed maps are weighed by how well they are conditioned:
/// otherwise those that divide by almost nothing are all that a gradient shows.
Tensor loss_gradient(const OpCase& c, const Inputs& in, const Tensor& rows) {
  at::manual_seed(1);
  Tensor dout = at::zeros({in.q.size(0), c.heads, c.length, c.values()}, at::kDouble);
  Tensor chosen = at::randn({dout.size(0), c.heads, rows.numel(), c.values()}, at::kDouble);
  if (has_signs(c.map)) {
    const auto exact = oracle(in, rows);
    const Tensor terms = exact.denominator_terms;
    const Tensor condition = exact.denominator / at::where(terms > 0, terms, 1.0);
    chosen = chosen * condition.square().unsqueeze(-1);
  }
  return dout.index_copy(2, rows, chosen).to(c.dtype);
}

class FavorGradient : public ::testing::TestWithParam<OpCase> {};

TEST_P(FavorGradient, OfEveryInputMatchesTheDefinitionInFloat64) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor rows = loss_rows(c.length);
  const Tensor dout = loss_gradient(c, in, rows);
  const auto got = operator_gradients(in, dout, true);
  const auto want = oracle_gradients(in, dout, true, rows);
  Inputs names = in;
  const auto inputs = differentiable(names);
  ASSERT_EQ(got.size(), inputs.size());
  const double bound = has_signs(c.map) ? 1e-10 : 1e-12;  // terms of signed maps cancel
  for (std::size_t n = 0; n < got.size(); ++n) {
    EXPECT_EQ(got[n].sizes(), inputs[n].second->sizes()) << inputs[n].first;
    EXPECT_LE(rms_error(got[n], want[n]), bound * std::max(rms(dout), rms(want[n])))
        << inputs[n].first;
  }
}

INSTANTIATE_TEST_SUITE_P(MapsMasksAndSums, FavorGradient, ::testing::ValuesIn(gradient_cases()),
                         CaseName());

class FavorNarrowGradient : public ::testing::TestWithParam<OpCase> {};

TEST_P(FavorNarrowGradient, IsWithinThreeTimesTheUnfusedError) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor rows = loss_rows(c.length);
  const Tensor dout = loss_gradient(c, in, rows);
  const auto got = operator_gradients(in, dout, false);
  const auto want = oracle_gradients(in, dout, false, rows);
  const auto unfused = oracle_gradients(in, dout, false, rows, c.dtype);
  const char* names[] = {"q", "k", "v"};
  for (std::size_t n = 0; n < 3; ++n) {
    ASSERT_EQ(got[n].scalar_type(), c.dtype) << names[n];
    const double floor = epsilon(at::kFloat) * std::max(rms(dout), rms(want[n]));
    EXPECT_LE(rms_error(got[n], want[n]), 3 * rms_error(unfused[n], want[n]) + floor) << names[n];
  }
}

INSTANTIATE_TEST_SUITE_P(NarrowCases, FavorNarrowGradient,
                         ::testing::ValuesIn(op_cases_where([](const OpCase& c) {
                           return c.dtype != at::kDouble;
                         })),
                         CaseName());

TEST(FavorGradient, OfRowsWithoutKeysIsZero) {
  for (const FeatureMap map : all_feature_maps()) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      Inputs in = make_inputs({.map = map, .causality = causality, .mask = true});
      in.options.key_mask.fill_(false);
      for (const Tensor& grad : operator_gradients(in, at::ones_like(in.q), false)) {
        EXPECT_TRUE(grad.eq(0).all().item<bool>()) << to_string(map);
      }
    }
  }
}

TEST(FavorGradient, FlowsThroughTheReturnedState) {
  for (const FeatureMap map :
       {FeatureMap::kPositive, FeatureMap::kTrigonometric, FeatureMap::kElu1}) {
    const OpCase c{.map = map, .causality = Causality::kCausal, .dtype = at::kDouble, .length = 70};
    const Inputs in = make_inputs(c);
    const Tensor rows = at::arange(40, 70, at::kLong);
    const Tensor dout = loss_gradient(c, in, rows);
    const auto want = oracle_gradients(in, dout, false, rows);

    // The first 40 tokens reach the loss through the state alone.
    Inputs leaves = as_leaves(in, false);
    const auto cut = [](const Tensor& t, std::int64_t begin, std::int64_t end) {
      return t.slice(2, begin, end);
    };
    auto state = favor_attention_with_state(cut(leaves.q, 0, 40), cut(leaves.k, 0, 40),
                                            cut(leaves.v, 0, 40), in.W, in.options)
                     .second;
    FavorOptions options = in.options;
    options.initial_state = state;
    const Tensor out = favor_attention(cut(leaves.q, 40, 70), cut(leaves.k, 40, 70),
                                       cut(leaves.v, 40, 70), in.W, options);
    const auto got = gradients_of(out, dout.slice(2, 40, 70), {leaves.q, leaves.k, leaves.v});
    for (std::size_t n = 0; n < 3; ++n) {
      EXPECT_LE(rms_error(got[n], want[n]), 1e-12 * std::max(rms(dout), rms(want[n])))
          << to_string(map) << " " << n;
    }
  }
}

TEST(FavorGradient, TakesAnExpandedUpstreamGradient) {
  const OpCase c{.causality = Causality::kCausal, .dtype = at::kDouble};
  const Inputs in = make_inputs(c);
  const Tensor ones = at::ones({}, at::kDouble).expand(in.q.sizes());
  const auto got = operator_gradients(in, ones, false);
  const auto want = operator_gradients(in, ones.contiguous(), false);
  for (std::size_t n = 0; n < 3; ++n) EXPECT_LE(rms_error(got[n], want[n]), 1e-14);
}

TEST(FavorGradient, OfAGradientWorksOrSaysThatItDoesNot) {
  Inputs leaves = as_leaves(make_inputs({.dtype = at::kDouble, .length = 5}), false);
  const Tensor out = favor_attention(leaves.q, leaves.k, leaves.v, leaves.W, leaves.options);
  try {
    const auto first = torch::autograd::grad({out.square().sum()}, {leaves.q}, {}, true, true);
    const auto second = torch::autograd::grad({first[0].square().sum()}, {leaves.k});
    Inputs again = as_leaves(leaves, false);
    const Tensor exact = oracle(again).out;
    const auto one = torch::autograd::grad({exact.square().sum()}, {again.q}, {}, true, true);
    const auto two = torch::autograd::grad({one[0].square().sum()}, {again.k});
    EXPECT_LE(rms_error(second[0], two[0]), 1e-10 * rms(two[0]));
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("favor_attention"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace performer::testing
