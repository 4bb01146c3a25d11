#include <gtest/gtest.h>

#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

class FavorAttentionBatch : public ::testing::TestWithParam<OpCase> {};

TEST_P(FavorAttentionBatch, MatchesTheDefinition) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor out = attend(in);
  ASSERT_EQ(out.size(2), c.length);
  const Tensor rows = sample_rows(c.length);
  expect_matches_definition(c, in, out.index_select(2, rows), rows);
}

INSTANTIATE_TEST_SUITE_P(AllCases, FavorAttentionBatch, ::testing::ValuesIn(op_cases()),
                         CaseName());
// What the kernels of GPUs serve too, in their sizes.
INSTANTIATE_TEST_SUITE_P(FusedCases, FavorAttentionBatch, ::testing::ValuesIn(read_cases("fused")),
                         CaseName());

/// Where terms cancel, the sums themselves are what can be promised.
class FavorAttentionSums : public ::testing::TestWithParam<OpCase> {};

double error_in_terms(const Tensor& got, const Tensor& want, const Tensor& terms) {
  const Tensor error = (got.to(at::kDouble) - want).abs();
  return rms(at::where(terms > 0, error / terms, error * 1e300));
}

TEST_P(FavorAttentionSums, NumeratorIsWithinRoundingOfItsTerms) {
  const OpCase& c = GetParam();
  Inputs in = make_inputs(c);
  in.options.renormalize = Renormalize::kNo;
  const Tensor rows = sample_rows(c.length);
  const auto exact = oracle(in, rows);
  EXPECT_LE(
      error_in_terms(attend(in).index_select(2, rows), exact.numerator, exact.numerator_terms),
      error_bound(c.dtype, c.length));
}

TEST_P(FavorAttentionSums, DenominatorIsWithinRoundingOfItsTerms) {
  const OpCase& c = GetParam();
  Inputs in = make_inputs(c);
  in.options.renormalize = Renormalize::kNo;
  in.v = at::ones_like(in.v.narrow(-1, 0, 1));
  auto& state = in.options.initial_state;
  if (state.defined()) state.kv = state.normalizer.unsqueeze(-1);
  const Tensor rows = sample_rows(c.length);
  const auto exact = oracle(in, rows);
  EXPECT_LE(error_in_terms(attend(in).index_select(2, rows), exact.denominator.unsqueeze(-1),
                           exact.denominator_terms.unsqueeze(-1)),
            error_bound(c.dtype, c.length));
}

INSTANTIATE_TEST_SUITE_P(SignedMaps, FavorAttentionSums,
                         ::testing::ValuesIn(op_cases_where([](const OpCase& c) {
                           return has_signs(c.map) &&
                                  (c.dtype == at::kDouble || c.dtype == at::kFloat);
                         })),
                         CaseName());

class FavorAttentionLong : public ::testing::TestWithParam<OpCase> {};

TEST_P(FavorAttentionLong, SixtyFourThousandTokensStayWithinTheBound) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor rows = sample_rows(c.length);
  expect_matches_definition(c, in, attend(in).index_select(2, rows), rows);
}

OpCase long_case(FeatureMap map, Causality causality) {
  OpCase c{.map = map, .causality = causality, .batch = 1, .heads = 1, .key_heads = 1};
  c.length = 65536;
  c.dim = 32;
  c.features = 32;
  c.name = std::string(to_string(map)) + (c.causal() ? "_causal" : "_both");
  return c;
}

INSTANTIATE_TEST_SUITE_P(Maps, FavorAttentionLong,
                         ::testing::Values(long_case(FeatureMap::kPositive,
                                                     Causality::kBidirectional),
                                           long_case(FeatureMap::kPositive, Causality::kCausal),
                                           long_case(FeatureMap::kHyperbolic, Causality::kCausal),
                                           long_case(FeatureMap::kRelu, Causality::kCausal)),
                         CaseName());

TEST(FavorAttention, RowsWithoutKeysAreZero) {
  for (const FeatureMap map : all_feature_maps()) {
    OpCase c{.map = map, .mask = true};
    Inputs in = make_inputs(c);
    in.options.key_mask.fill_(false);
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      in.options.causality = causality;
      EXPECT_TRUE(attend(in).eq(0).all().item<bool>()) << to_string(map);
    }
  }
}

TEST(FavorAttention, ADenominatorOfExactlyZeroGivesZero) {
  // sgn features of one row: +1 for one key, -1 for the other.
  Inputs in;
  in.options.feature_map = FeatureMap::kSgn;
  in.options.eps = 0;
  in.q = at::ones({1, 1, 1, 1});
  in.k = at::tensor({1.0f, -1.0f}).view({1, 1, 2, 1});
  in.v = at::tensor({3.0f, 5.0f}).view({1, 1, 2, 1});
  EXPECT_EQ(attend(in).item<float>(), 0);
}

TEST(FavorAttention, PositiveEqualsLoglinearWithTheNormAsKeyBias) {
  const OpCase c{.causality = Causality::kCausal, .dtype = at::kDouble};
  Inputs in = make_inputs(c);
  const Tensor positive = attend(in);
  in.options.feature_map = FeatureMap::kLoglinear;
  in.options.key_bias = in.k.square().sum(-1) * (-0.5 / std::sqrt(8.0));
  EXPECT_LE(rms_error(attend(in), positive), 1e-14);
}

}  // namespace
}  // namespace performer::testing
