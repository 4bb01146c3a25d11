#include <gtest/gtest.h>

#include <vector>

#include "performer/ops/favor/step.h"
#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// Tokens [begin, end) of a problem; the state is the caller's.
Inputs part(const Inputs& in, std::int64_t begin, std::int64_t end) {
  Inputs p = in;
  for (Tensor* t : {&p.q, &p.k, &p.v}) *t = t->slice(2, begin, end);
  for (Tensor* t : {&p.options.key_mask, &p.options.key_bias}) {
    if (t->defined()) *t = t->slice(-1, begin, end);
  }
  p.options.initial_state = {};
  return p;
}

/// Prefill in the given pieces, then one token at a time to the end.
Tensor stream(const Inputs& in, const std::vector<std::int64_t>& pieces) {
  const std::int64_t length = in.q.size(2);
  FavorState state = in.options.initial_state;
  std::vector<Tensor> outs;
  std::int64_t done = 0;
  for (const auto piece : pieces) {
    const auto end = std::min(length, done + piece);
    Inputs p = part(in, done, end);
    p.options.initial_state = state;
    auto [out, next] = favor_attention_with_state(p.q, p.k, p.v, p.W, p.options);
    outs.push_back(out);
    state = next;
    done = end;
  }
  for (; done < length; ++done) {
    const Inputs p = part(in, done, done + 1);
    auto [out, next] = favor_step(p.q, p.k, p.v, p.W, state, p.options);
    outs.push_back(out);
    state = next;
  }
  return outs.empty() ? at::zeros_like(in.v.narrow(2, 0, 0)) : at::cat(outs, 2);
}

class FavorSteps : public ::testing::TestWithParam<OpCase> {};

TEST_P(FavorSteps, TokenByTokenMatchesTheDefinition) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor rows = sample_rows(c.length);
  expect_matches_definition(c, in, stream(in, {}).index_select(2, rows), rows);
}

INSTANTIATE_TEST_SUITE_P(CausalCases, FavorSteps,
                         ::testing::ValuesIn(op_cases_where([](const OpCase& c) {
                           return c.causal() && !c.packed && c.length > 0 && c.length <= 1000;
                         })),
                         CaseName());

class FavorStream : public ::testing::TestWithParam<OpCase> {};

TEST_P(FavorStream, ChunkedPrefillAndStepsMatchTheDefinition) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const std::int64_t most = std::max<std::int64_t>(0, c.length - 40);
  const Tensor rows = sample_rows(c.length);
  const Tensor out = stream(in, {most / 2, 0, most - most / 2, 17});
  expect_matches_definition(c, in, out.index_select(2, rows), rows);
}

INSTANTIATE_TEST_SUITE_P(CausalCases, FavorStream,
                         ::testing::ValuesIn(op_cases_where([](const OpCase& c) {
                           return c.causal() && !c.packed && c.length > 0;
                         })),
                         CaseName());

TEST(FavorStep, ContinuesAnUndefinedStateAsTheFirstToken) {
  const Inputs in = make_inputs({.causality = Causality::kCausal, .length = 1});
  const Tensor whole = favor_attention(in.q, in.k, in.v, in.W, in.options);
  const auto [out, state] = favor_step(in.q, in.k, in.v, in.W, {}, in.options);
  EXPECT_LE(rms_error(out, whole), 1e-6);
  ASSERT_TRUE(state.defined());
  EXPECT_EQ(state.kv.sizes(), (std::vector<std::int64_t>{2, 2, 16, 8}));
  EXPECT_EQ(state.kv.scalar_type(), at::kFloat);
  EXPECT_EQ(state.log2_scale.scalar_type(), at::kInt);
}

TEST(FavorState, HoldsTheSumsOverKeysFeatureByFeature) {
  for (const FeatureMap map : all_feature_maps()) {
    const OpCase c{.map = map, .dtype = at::kDouble, .heads = 4, .mask = true};
    const Inputs in = make_inputs(c);
    const auto [out, state] = favor_attention_with_state(in.q, in.k, in.v, in.W, in.options);
    // Queries that see nothing but the state must get what the keys gave.
    Inputs alone = part(in, 0, 0);
    alone.q = in.q;
    alone.options.initial_state = state;
    EXPECT_LE(rms_error(oracle(alone).out, oracle(in).out),
              1e-11 * std::max(1.0, rms(oracle(in).out)))
        << to_string(map);
  }
}

TEST(FavorState, PackedSequencesEachContinueTheirOwnState) {
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    const OpCase c{.causality = causality, .dtype = at::kDouble, .batch = 1, .packed = true};
    Inputs in = make_inputs(c);
    in.options.initial_state =
        favor_attention_with_state(in.q, in.k, in.v, in.W, in.options).second;
    EXPECT_EQ(in.options.initial_state.kv.size(0), 4);
    const Tensor out = favor_attention(in.q, in.k, in.v, in.W, in.options);
    EXPECT_LE(rms_error(out, oracle(in).out), 1e-12);
  }
}

}  // namespace
}  // namespace performer::testing
