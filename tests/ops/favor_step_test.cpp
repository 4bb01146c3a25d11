#include "performer/ops/favor/step.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

struct Stream {
  Inputs in;
  FavorState state;  // after the prompt
  std::vector<Inputs> steps;
};

/// The first `prompt` tokens of a case as a state, and the others one by one.
Stream split(const OpCase& c, std::int64_t prompt) {
  const Inputs in = make_inputs(c);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    Inputs p = in;
    for (Tensor* t : {&p.q, &p.k, &p.v}) *t = t->slice(2, begin, end);
    for (Tensor* t : {&p.options.key_mask, &p.options.key_bias}) {
      if (t->defined()) *t = t->slice(-1, begin, end);
    }
    return p;
  };
  const Inputs head = part(0, prompt);
  Stream s{in, favor_attention_with_state(head.q, head.k, head.v, head.W, head.options).second, {}};
  for (std::int64_t t = prompt; t < c.length; ++t) {
    s.steps.push_back(part(t, t + 1));
    s.steps.back().options.initial_state = {};
  }
  return s;
}

FavorState copy_of(const FavorState& state) {
  return {state.kv.clone(), state.normalizer.clone(), state.log2_scale.clone(), state.fingerprint};
}

FavorOptions with_state(FavorOptions options, const FavorState& state) {
  options.initial_state = state;
  return options;
}

class FavorStepInPlace : public ::testing::TestWithParam<OpCase> {};

TEST_P(FavorStepInPlace, IsTheFunctionalStepWrittenOverItsState) {
  const at::NoGradGuard no_grad;
  const OpCase& c = GetParam();
  Stream s = split(c, c.length - std::min<std::int64_t>(c.length, 6));
  const FavorState place = copy_of(s.state);
  for (const Inputs& in : s.steps) {
    const auto [out, next] = favor_step(in.q, in.k, in.v, in.W, s.state, in.options);
    const Tensor got = favor_step_in_place(in.q, in.k, in.v, in.W, with_state(in.options, place));
    EXPECT_TRUE(bit_equal(got, out));
    EXPECT_EQ(got.strides(), out.strides());
    EXPECT_TRUE(bit_equal(place.kv, next.kv));
    EXPECT_TRUE(bit_equal(place.normalizer, next.normalizer));
    EXPECT_TRUE(bit_equal(place.log2_scale, next.log2_scale));
    s.state = next;
  }
}

INSTANTIATE_TEST_SUITE_P(CausalCases, FavorStepInPlace,
                         ::testing::ValuesIn(op_cases_where([](const OpCase& c) {
                           return c.causal() && !c.packed && c.length > 0 && c.length <= 65;
                         })),
                         CaseName());

OpCase small() { return {.causality = Causality::kCausal, .length = 4}; }

TEST(FavorStepInPlace, LeavesTheStateOfAMaskedKeyAlone) {
  const at::NoGradGuard no_grad;
  Stream s = split(small(), 3);
  Inputs& in = s.steps.front();
  const FavorState before = copy_of(s.state);
  in.options.key_mask = at::tensor({1, 0}).view({2, 1}).to(at::kBool);
  in.k[1].fill_(std::numeric_limits<double>::quiet_NaN());
  favor_step_in_place(in.q, in.k, in.v, in.W, with_state(in.options, s.state));
  EXPECT_FALSE(s.state.kv[0].equal(before.kv[0]));
  EXPECT_TRUE(s.state.kv[1].equal(before.kv[1]));
  EXPECT_TRUE(s.state.normalizer[1].equal(before.normalizer[1]));
  EXPECT_TRUE(s.state.log2_scale[1].equal(before.log2_scale[1]));
}

TEST(FavorStepInPlace, SaysWhatItCannotTake) {
  const at::NoGradGuard no_grad;
  const Stream s = split(small(), 2);
  const Inputs& in = s.steps.front();
  const auto refusal = [&](const Inputs& i, const FavorState& state) {
    return message_of(
        [&] { favor_step_in_place(i.q, i.k, i.v, i.W, with_state(i.options, state)); });
  };
  FavorState turned = s.state;
  turned.kv = at::empty({2, 2, 8, 16}).transpose(2, 3);
  EXPECT_EQ(refusal(in, turned),
            "favor_step_: state_kv is written in place and must be contiguous, got strides "
            "[256, 128, 1, 16]");
  EXPECT_EQ(refusal(s.in, s.state),
            "favor_step_: q must be one token, [batch, heads, 1, dim], got [2, 2, 4, 8]");
  EXPECT_EQ(refusal(in, {}), "favor_step_: q, k, v and the state must be defined tensors");
}

TEST(FavorStepInPlace, ComparesFingerprintsWhenAsked) {
  const at::NoGradGuard no_grad;
  const Stream s = split(small(), 2);
  const Inputs& in = s.steps.front();
  EXPECT_NO_THROW(check_favor_state(in.q, in.k, in.v, in.W, with_state(in.options, s.state)));
  EXPECT_NE(message_of([&] {
              check_favor_state(in.q, in.k, in.v, in.W * 2, with_state(in.options, s.state));
            }).find("initial_state was made with another W"),
            std::string::npos);
}

TEST(FavorStepInPlace, HasNoGradient) {
  const Stream s = split(small(), 2);
  const Inputs& in = s.steps.front();
  const FavorState state = copy_of(s.state);
  const Tensor q = in.q.detach().requires_grad_();
  const Tensor out = favor_step_in_place(q, in.k, in.v, in.W, with_state(in.options, state));
  EXPECT_NE(message_of([&] { out.sum().backward(); }).find("favor_step_"), std::string::npos);
}

}  // namespace
}  // namespace performer::testing
