#include <gtest/gtest.h>

#include "performer/ops/favor/merge.h"
#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// The state after keys [begin, end).
FavorState state_after(const Inputs& in, std::int64_t begin, std::int64_t end) {
  return favor_attention_with_state(in.q.slice(2, begin, end), in.k.slice(2, begin, end),
                                    in.v.slice(2, begin, end), in.W, in.options)
      .second;
}

/// What queries that see only the state get, by the definition.
Tensor read(const Inputs& in, const FavorState& state) {
  Inputs alone = in;
  for (Tensor* t : {&alone.k, &alone.v}) *t = t->slice(2, 0, 0);
  alone.options.causality = Causality::kBidirectional;
  alone.options.initial_state = state;
  return oracle(alone).out;
}

FavorState empty_like(const FavorState& state) {
  FavorState empty = state;
  empty.kv = at::zeros_like(state.kv);
  empty.normalizer = at::zeros_like(state.normalizer);
  empty.log2_scale = at::full_like(state.log2_scale, kEmptyLog2Scale);
  return empty;
}

void expect_bit_equal(const FavorState& a, const FavorState& b) {
  EXPECT_TRUE(bit_equal(a.kv, b.kv));
  EXPECT_TRUE(bit_equal(a.normalizer, b.normalizer));
  EXPECT_TRUE(a.log2_scale.equal(b.log2_scale));
}

class MergeStates : public ::testing::TestWithParam<FeatureMap> {
 protected:
  Inputs inputs(double magnitude = 1) const {
    return make_inputs({.map = GetParam(), .dtype = at::kDouble, .magnitude = magnitude});
  }
  /// Signed maps may divide by almost nothing.
  double tolerance() const { return has_signs(GetParam()) ? 1e-10 : 1e-13; }
};

TEST_P(MergeStates, OfChunksIsTheStateOfTheWhole) {
  for (const double magnitude : {1.0, 30.0}) {
    const Inputs in = inputs(magnitude);
    const FavorState whole = state_after(in, 0, 65);
    const FavorState merged = merge_states(
        merge_states(state_after(in, 0, 3), state_after(in, 3, 40)), state_after(in, 40, 65));
    const Tensor want = read(in, whole);
    EXPECT_LE(rms_error(read(in, merged), want), tolerance() * std::max(1.0, rms(want)));
    EXPECT_TRUE(merged.log2_scale.equal(whole.log2_scale));
  }
}

TEST_P(MergeStates, IsAssociativeToRounding) {
  const Inputs in = inputs(3);
  const auto a = state_after(in, 0, 20), b = state_after(in, 20, 21), c = state_after(in, 21, 65);
  const auto left = merge_states(merge_states(a, b), c),
             right = merge_states(a, merge_states(b, c));
  EXPECT_TRUE(left.log2_scale.equal(right.log2_scale));
  EXPECT_LE(rms_error(left.kv, right.kv), 1e-14 * rms(left.kv));
  EXPECT_LE(rms_error(left.normalizer, right.normalizer), 1e-14 * rms(left.normalizer));
}

TEST_P(MergeStates, WithTheEmptyStateChangesNoBit) {
  const FavorState state = state_after(inputs(), 0, 65);
  const FavorState empty = empty_like(state);
  expect_bit_equal(merge_states(state, empty), state);
  expect_bit_equal(merge_states(empty, state), state);
  expect_bit_equal(merge_states(empty, empty), empty);
}

TEST_P(MergeStates, OfNoTokensIsTheEmptyState) {
  const Inputs in = inputs();
  const FavorState none = state_after(in, 0, 0);
  EXPECT_EQ(none.kv.sizes(), state_after(in, 0, 65).kv.sizes());
  EXPECT_TRUE(none.kv.eq(0).all().item<bool>());
  const FavorState state = state_after(in, 0, 65);
  expect_bit_equal(merge_states(state, none), state);
}

INSTANTIATE_TEST_SUITE_P(EveryMap, MergeStates, ::testing::ValuesIn(all_feature_maps()),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(MergeStates, IsDifferentiable) {
  const Inputs in = make_inputs({.dtype = at::kDouble});
  const auto a = state_after(in, 0, 30), b = state_after(in, 30, 65);
  FavorState x = a, y = b;
  x.kv = a.kv.detach().requires_grad_();
  y.normalizer = b.normalizer.detach().requires_grad_();
  const auto merged = merge_states(x, y);
  const auto grads =
      torch::autograd::grad({merged.kv.sum() + merged.normalizer.sum()}, {x.kv, y.normalizer});
  const Tensor top = at::maximum(a.log2_scale, b.log2_scale);
  const Tensor factor_a = at::exp2((a.log2_scale - top).to(at::kDouble));
  const Tensor factor_b = at::exp2((b.log2_scale - top).to(at::kDouble));
  EXPECT_TRUE(grads[0].equal(factor_a.unsqueeze(-1).expand_as(grads[0])));
  EXPECT_TRUE(grads[1].equal(factor_b));
}

TEST(MergeStates, RefusesStatesOfDifferentShapesOrProjections) {
  const Inputs in = make_inputs({});
  const auto a = state_after(in, 0, 30);
  expect_throw_with([&] { merge_states(a, a.reorder(at::tensor({0}, at::kLong))); },
                    {"merge_states", "[1, 2, 16, 8]"});
  Inputs other = in;
  other.W = in.W + 1;
  expect_throw_with([&] { merge_states(a, state_after(other, 0, 30)); }, {"merge_states"});
}

TEST(FavorState, ReordersSequencesAndForksThem) {
  const Inputs in = make_inputs({});
  const auto state = state_after(in, 0, 65);
  const auto forked = state.reorder(at::tensor({1, 1, 0}, at::kLong));
  ASSERT_EQ(forked.kv.size(0), 3);
  EXPECT_TRUE(bit_equal(forked.kv[0], state.kv[1]));
  EXPECT_TRUE(bit_equal(forked.normalizer[1], state.normalizer[1]));
  EXPECT_TRUE(forked.log2_scale[2].equal(state.log2_scale[0]));
  EXPECT_FALSE(forked.kv.is_alias_of(state.kv));
  EXPECT_TRUE(forked.fingerprint.equal(state.fingerprint));
}

TEST(FavorState, CountsItsBytesAndMoves) {
  const auto state = state_after(make_inputs({}), 0, 65);
  const std::int64_t sums = 2 * 2 * 16;
  EXPECT_GE(state.nbytes(), (sums * 8 + sums + sums) * 4);
  EXPECT_LE(state.nbytes(), (sums * 8 + sums + sums) * 4 + 8);
  const auto moved = state.to(at::kCPU);
  expect_bit_equal(moved, state);
  EXPECT_EQ(state.to(at::kMeta).kv.device().type(), at::kMeta);
  EXPECT_TRUE(moved.fingerprint.equal(state.fingerprint));
}

TEST(FavorState, OfEqualParametersHasAnEqualFingerprint) {
  const Inputs in = make_inputs({});
  Inputs copy = in;
  copy.W = in.W.clone();
  EXPECT_TRUE(state_after(in, 0, 5).fingerprint.equal(state_after(copy, 5, 9).fingerprint));
}

}  // namespace
}  // namespace performer::testing
