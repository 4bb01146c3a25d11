// The near field: exact attention close by and features beyond it, under one denominator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "performer/ops/favor/merge.h"
#include "performer/ops/favor/step.h"
#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

constexpr std::int64_t kBlocks[] = {1, 7, 64, 128};

// The lines of a table that a near field allows, with each block.
std::vector<OpCase> with_near(const std::string& table, at::ArrayRef<std::int64_t> blocks) {
  std::vector<OpCase> cases;
  for (OpCase c : read_cases(table)) {
    if (!is_softmax_map(c.map) || c.keys() != c.length || c.length > 1000) continue;
    // One rounding of one number says nothing.
    if (c.length == 1 && (c.dtype == at::kBFloat16 || c.dtype == at::kHalf)) continue;
    for (const std::int64_t block : blocks) {
      if (block == 1 && c.length > 130) continue;
      c.near = block;
      c.name = line_of(c);
      std::ranges::replace_if(
          c.name, [](unsigned char x) { return std::isalnum(x) == 0; }, '_');
      cases.push_back(c);
    }
  }
  return cases;
}

Tensor rows_around_borders(const OpCase& c) {
  if (c.length <= 130) return at::arange(c.length, at::kLong);
  std::vector<std::int64_t> rows;
  for (std::int64_t border = 0; border <= c.length; border += c.near * (1 + 200 / c.near)) {
    for (std::int64_t row = std::max<std::int64_t>(0, border - 1); row < border + 2; ++row) {
      if (row < c.length && (rows.empty() || row > rows.back())) rows.push_back(row);
    }
  }
  if (rows.back() != c.length - 1) rows.push_back(c.length - 1);
  return at::tensor(rows, at::kLong);
}

class NearField : public ::testing::TestWithParam<OpCase> {};

TEST_P(NearField, MatchesTheDefinition) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor rows = rows_around_borders(c);
  const Tensor got = attend(in).index_select(2, rows);
  if (c.magnitude == 1 || c.dtype == at::kDouble) {
    expect_matches_definition(c, in, got, rows);
  } else {  // scores of many digits before the point are rounded whatever computes them
    const Tensor exact = oracle(in, rows).out;
    const double unfused = rms_error(oracle(in, rows, c.dtype).out, exact);
    EXPECT_LE(rms_error(got, exact), 2 * unfused + epsilon(at::kFloat) * rms(in.v));
  }
}

INSTANTIATE_TEST_SUITE_P(Borders, NearField, ::testing::ValuesIn(read_cases("near")), CaseName());
INSTANTIATE_TEST_SUITE_P(EveryMap, NearField, ::testing::ValuesIn(with_near("every_map", kBlocks)),
                         CaseName());

// Every pair written out: who is near whom, and the weight of each.
TEST(NearField, DefinitionIsTheFormulaWrittenOutByPairs) {
  for (const FeatureMap map : {FeatureMap::kPositive, FeatureMap::kHyperbolic,
                               FeatureMap::kTrigonometric, FeatureMap::kLoglinear}) {
    for (const bool causal : {false, true}) {
      const OpCase c{.map = map,
                     .causality = causal ? Causality::kCausal : Causality::kBidirectional,
                     .dtype = at::kDouble,
                     .batch = 1,
                     .heads = 1,
                     .key_heads = 1,
                     .length = 11,
                     .dim = 3,
                     .features = 4,
                     .query_bias = map == FeatureMap::kLoglinear,
                     .near = 3};
      const Inputs in = make_inputs(c);
      const Tensor x = in.q[0][0] / std::pow(3.0, 0.25), y = in.k[0][0] / std::pow(3.0, 0.25);
      Tensor phi_x = features(x, in.W, map), phi_y = features(y, in.W, map);
      if (map == FeatureMap::kLoglinear) {
        phi_x = phi_x * in.options.query_bias[0][0].unsqueeze(-1).exp() / 2.0;  // 1 / sqrt(4)
        phi_y = phi_y / 2.0;
      }
      Tensor weights = at::zeros({11, 11}, at::kDouble);
      for (std::int64_t i = 0; i < 11; ++i) {
        for (std::int64_t j = 0; j < (causal ? i + 1 : 11); ++j) {
          const bool near = std::abs(i / 3 - j / 3) <= 1;
          weights[i][j] = near ? x[i].dot(y[j]).exp() : phi_x[i].dot(phi_y[j]);
        }
      }
      const auto exact = oracle(in);
      EXPECT_LT(max_error(exact.denominator[0][0], weights.sum(-1)), 1e-12 * 11);
      EXPECT_LT(max_error(exact.numerator[0][0], weights.matmul(in.v[0][0])), 1e-11);
    }
  }
}

class NearFieldGradient : public ::testing::TestWithParam<OpCase> {};

TEST_P(NearFieldGradient, OfEveryInputMatchesTheDefinition) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor rows = at::arange(c.length, at::kLong);
  at::manual_seed(1);
  Tensor dout = at::randn({in.q.size(0), c.heads, c.length, c.values()}, at::kDouble);
  if (has_signs(c.map)) {  // rows that divide by almost nothing would be all that a gradient shows
    const auto exact = oracle(in, rows);
    const Tensor terms = exact.denominator_terms;
    dout = dout * (exact.denominator / at::where(terms > 0, terms, 1.0)).square().unsqueeze(-1);
  }
  const auto got = operator_gradients(in, dout, true);
  const auto want = oracle_gradients(in, dout, true, rows);
  Inputs names = in;
  const auto inputs = differentiable(names);
  ASSERT_EQ(got.size(), inputs.size());
  const double bound = has_signs(c.map) ? 1e-10 : 1e-12;
  for (std::size_t n = 0; n < got.size(); ++n) {
    EXPECT_EQ(got[n].sizes(), inputs[n].second->sizes()) << inputs[n].first;
    EXPECT_LE(rms_error(got[n], want[n]), bound * std::max(rms(dout), rms(want[n])))
        << inputs[n].first;
  }
}

std::vector<OpCase> short_near_cases() {
  std::vector<OpCase> cases;
  for (OpCase c : read_cases("near")) {
    if (c.length > 22 || c.near > 64 || c.magnitude != 1) continue;
    c.dtype = at::kDouble;
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Borders, NearFieldGradient, ::testing::ValuesIn(short_near_cases()),
                         CaseName());
constexpr std::int64_t kShortBlocks[] = {3};
INSTANTIATE_TEST_SUITE_P(MapsMasksAndSums, NearFieldGradient,
                         ::testing::ValuesIn(with_near("gradients", kShortBlocks)), CaseName());

Tensor slice(const Tensor& t, std::int64_t begin, std::int64_t end) {
  return t.slice(2, begin, end);
}

OpCase causal_case(FeatureMap map, at::ScalarType dtype, std::int64_t near) {
  return {.map = map,
          .causality = Causality::kCausal,
          .dtype = dtype,
          .heads = 4,
          .key_heads = 2,
          .length = 90,
          .near = near};
}

TEST(NearField, LaterTokensLeaveEarlierRowsBitEqual) {
  for (const std::int64_t near : {1, 7, 64}) {
    for (const at::ScalarType dtype : case_dtypes()) {
      const Inputs in = make_inputs(causal_case(FeatureMap::kPositive, dtype, near));
      const Tensor before = attend(in);
      for (const double value : {1e4, std::nan(""), std::numeric_limits<double>::infinity()}) {
        Inputs changed = in;
        for (Tensor* t : {&changed.q, &changed.k, &changed.v}) {
          *t = t->clone();
          t->slice(2, 50).fill_(value);
        }
        EXPECT_TRUE(bit_equal(slice(attend(changed), 0, 50), slice(before, 0, 50)))
            << near << " " << dtype_name(dtype) << " " << value;
      }
    }
  }
}

TEST(NearField, ANaNInOneColumnOfTheValuesStaysThere) {
  Inputs in = make_inputs(causal_case(FeatureMap::kPositive, at::kFloat, 7));
  in.v = in.v.clone();
  in.v.select(2, 40).select(-1, 3).fill_(std::nan(""));
  const Tensor out = attend(in);
  EXPECT_TRUE(slice(out, 0, 40).isfinite().all().item<bool>());
  EXPECT_TRUE(slice(out, 40, 90).select(-1, 3).isnan().all().item<bool>());
  EXPECT_TRUE(out.select(-1, 2).isfinite().all().item<bool>());
}

TEST(NearField, PiecesAndStepsAreTheWhole) {
  for (const FeatureMap map : {FeatureMap::kPositive, FeatureMap::kLoglinear,
                               FeatureMap::kHyperbolic, FeatureMap::kTrigonometric}) {
    for (const std::int64_t near : {1, 7, 30, 128}) {
      const Inputs in = make_inputs(causal_case(map, at::kDouble, near));
      const auto [whole, last] = favor_attention_with_state(in.q, in.k, in.v, in.W, in.options);
      FavorOptions options = in.options;
      std::vector<Tensor> parts;
      std::int64_t begin = 0;
      for (const std::int64_t length : {1, 1, 5, 30, 0, 28, 1, 1, 1, 22}) {
        const auto cut = [&, end = begin + length](const Tensor& t) {
          return slice(t, begin, end);
        };
        const auto [out, state] =
            favor_attention_with_state(cut(in.q), cut(in.k), cut(in.v), in.W, options);
        parts.push_back(out);
        options.initial_state = state;
        begin += length;
      }
      ASSERT_EQ(begin, in.q.size(2));
      const Tensor joined = at::cat(parts, 2);
      const double bound = map == FeatureMap::kTrigonometric ? 1e-7 : 1e-12;
      EXPECT_LT(max_error(joined, whole), bound) << to_string(map) << " " << near;
      const FavorState& state = options.initial_state;
      EXPECT_TRUE(bit_equal(state.near_position, last.near_position));
      EXPECT_TRUE(bit_equal(state.near_keys, last.near_keys));
      EXPECT_TRUE(bit_equal(state.near_bias, last.near_bias));
      EXPECT_EQ(state.near_position[0].item<std::int64_t>(), 90);
    }
  }
}

TEST(NearField, AStepInPlaceIsTheStep) {
  const Inputs in = make_inputs(causal_case(FeatureMap::kPositive, at::kFloat, 7));
  const Tensor whole = attend(in);
  FavorOptions options = in.options;
  const auto cut = [&](const Tensor& t, std::int64_t begin, std::int64_t end) {
    return slice(t, begin, end);
  };
  options.initial_state = favor_attention_with_state(cut(in.q, 0, 20), cut(in.k, 0, 20),
                                                     cut(in.v, 0, 20), in.W, options)
                              .second;
  const void* place = options.initial_state.near_keys.const_data_ptr();
  for (std::int64_t t = 20; t < 60; ++t) {
    const Tensor out = favor_step_in_place(cut(in.q, t, t + 1), cut(in.k, t, t + 1),
                                           cut(in.v, t, t + 1), in.W, options);
    EXPECT_LT(max_error(out, cut(whole, t, t + 1)), 1e-5) << t;
  }
  EXPECT_EQ(options.initial_state.near_keys.const_data_ptr(), place);
  EXPECT_EQ(options.initial_state.near_position[1].item<std::int64_t>(), 60);
}

TEST(NearField, LeftPaddingChangesNothing) {
  for (const bool causal : {true, false}) {
    OpCase c = causal_case(FeatureMap::kPositive, at::kDouble, 7);
    c.causality = causal ? Causality::kCausal : Causality::kBidirectional;
    const Inputs in = make_inputs(c);
    const auto padded = [](const Tensor& t, double value) {
      return at::cat({at::full_like(slice(t, 0, 10), value), t}, 2);
    };
    Inputs late = in;
    late.q = padded(in.q, 1.0), late.k = padded(in.k, 5.0), late.v = padded(in.v, std::nan(""));
    late.options.key_mask = at::ones({2, 100}, at::kBool);
    late.options.key_mask.slice(1, 0, 10).fill_(false);
    EXPECT_LT(max_error(slice(attend(late), 10, 100), attend(in)), 1e-13);
    EXPECT_TRUE(slice(attend(late), 0, 10).eq(0).all().item<bool>());
    // A bias of -inf is the same as a mask.
    late.options.key_bias = at::zeros({2, 100}, at::kDouble);
    late.options.key_bias.masked_fill_(late.options.key_mask.logical_not(),
                                       -std::numeric_limits<double>::infinity());
    late.options.key_mask = Tensor();
    EXPECT_LT(max_error(slice(attend(late), 10, 100), attend(in)), 1e-13);
  }
}

TEST(NearField, AloneItIsLocalAttention) {
  OpCase c = causal_case(FeatureMap::kPositive, at::kDouble, 128);
  Inputs in = make_inputs(c);
  in.W = at::zeros({0, c.dim}, at::kDouble);
  const Tensor exact = reference::exact_attention(in.q, in.k, in.v, in.options);
  EXPECT_LT(max_error(attend(in), exact), 1e-13);  // all 90 tokens are near
  in.options.near = 7;
  const Tensor rows = at::arange(90, at::kLong);
  expect_matches_definition(c, in, attend(in), rows);
  const auto got = operator_gradients(in, at::ones_like(in.q), true);
  EXPECT_TRUE(got[0].isfinite().all().item<bool>());
}

TEST(NearField, MergedStatesAreTheState) {
  for (const std::int64_t near : {1, 6, 30}) {
    OpCase c = causal_case(FeatureMap::kPositive, at::kDouble, near);
    c.key_bias = true;
    Inputs in = make_inputs(c);
    in.options.key_bias.select(-1, 2).fill_(0.5);  // a masked key in a later piece would start it
    const auto state_after = [&](std::int64_t begin, std::int64_t end) {
      FavorOptions options = in.options;
      options.key_bias = in.options.key_bias.slice(-1, begin, end);
      return favor_attention_with_state(slice(in.q, begin, end), slice(in.k, begin, end),
                                        slice(in.v, begin, end), in.W, options)
          .second;
    };
    const FavorState whole = state_after(0, 90);
    for (const std::int64_t cut : {0, 30, 60, 84, 90}) {
      if (cut % near != 0) continue;
      const FavorState merged =
          merge_states(state_after(0, cut), state_after(cut, 90), in.W, in.options);
      const auto value = [](const FavorState& s) {
        return s.kv * s.log2_scale.to(at::kDouble).exp2().unsqueeze(-1);
      };
      EXPECT_LT(max_error(value(merged), value(whole)), 1e-12) << near << " " << cut;
      EXPECT_TRUE(bit_equal(merged.near_keys, whole.near_keys)) << near << " " << cut;
      EXPECT_TRUE(bit_equal(merged.near_values, whole.near_values));
      EXPECT_TRUE(bit_equal(merged.near_bias, whole.near_bias));
      EXPECT_TRUE(bit_equal(merged.near_position, whole.near_position));
    }
  }
  const Inputs in = make_inputs(causal_case(FeatureMap::kPositive, at::kDouble, 7));
  const FavorState state = favor_attention_with_state(in.q, in.k, in.v, in.W, in.options).second;
  expect_throw_with([&] { merge_states(state, state, in.W, in.options); },
                    {"merge_states", "whole block of 7", "near_position 90"});
  expect_throw_with([&] { merge_states(state, state); }, {"merge_states", "need W"});
}

TEST(NearField, RefusesWhatItCannotMean) {
  const OpCase c = causal_case(FeatureMap::kPositive, at::kFloat, 7);
  const auto refused = [&](auto change, const std::vector<std::string>& words) {
    Inputs in = make_inputs(c);
    change(in);
    expect_throw_with([&] { attend(in); }, words);
  };
  refused([](Inputs& in) { in.options.near = -1; }, {"near must be in 0 ... 4096", "-1"});
  refused([](Inputs& in) { in.options.near = 4097; }, {"near must be in 0 ... 4096", "4097"});
  refused([](Inputs& in) { in.options.feature_map = FeatureMap::kRelu; }, {"near", "relu"});
  refused(
      [](Inputs& in) {
        in.options.query_bias = at::zeros({2, 90});
      },
      {"query_bias", "loglinear", "positive"});
  refused(
      [](Inputs& in) {
        in.options.causality = Causality::kBidirectional;
        in.q = slice(in.q, 0, 30);
      },
      {"near needs q and k of the same tokens"});
  refused(
      [](Inputs& in) {
        for (Tensor* t : {&in.q, &in.k, &in.v}) *t = t->slice(0, 0, 1);
        in.options.causality = Causality::kBidirectional;
        in.options.cu_seqlens_q = at::tensor({0, 40, 90}, at::kInt);
        in.options.cu_seqlens_k = at::tensor({0, 41, 90}, at::kInt);
      },
      {"near needs equal cu_seqlens_q and cu_seqlens_k"});
  const FavorState far = [&] {
    Inputs in = make_inputs(c);
    in.options.near = 0;
    return favor_attention_with_state(in.q, in.k, in.v, in.W, in.options).second;
  }();
  refused([&](Inputs& in) { in.options.initial_state = far; },
          {"initial_state was made without a near field", "near_keys"});
  const FavorState near = [&] {
    const Inputs in = make_inputs(c);
    return favor_attention_with_state(in.q, in.k, in.v, in.W, in.options).second;
  }();
  refused([&](Inputs& in) { in.options.initial_state = near, in.options.near = 0; },
          {"near_keys", "near=0"});
  refused([&](Inputs& in) { in.options.initial_state = near, in.options.near = 8; },
          {"near_keys", "[2, 2, 16, 8]", "[2, 2, 14, 8]"});
  refused(
      [&](Inputs& in) {
        in.options.initial_state = near;
        in.options.initial_state.near_position = at::full({2}, -3, at::kLong);
      },
      {"near_position", "-3"});
}

}  // namespace
}  // namespace performer::testing
