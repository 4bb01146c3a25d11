#include "performer/models/transformer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "performer/models/attention_kind.h"
#include "performer/models/favor_core.h"
#include "tests/models/tiny_model.h"
#include "tests/support/failure.h"

namespace performer::models::testing {
namespace {

using performer::testing::failure_of;

class EveryKind : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind, ::testing::ValuesIn(attention_kinds()),
                         [](const auto& info) { return info.param; });

TEST_P(EveryKind, GivesLogitsForEveryFormOfModel) {
  for (const char* positions : {"learned", "sinusoidal", "rotary", "none"}) {
    for (const char* norm_position : {"pre", "post"}) {
      ModelConfig c = tiny(GetParam());
      c.positions = positions;
      c.norm_position = norm_position;
      c.norm = c.positions == "rotary" ? "rms" : "layer";
      c.activation = c.positions == "rotary" ? "swiglu" : c.positions == "none" ? "relu" : "gelu";
      c.tied = c.norm_position == "pre";
      auto model = make(c);
      const Tensor out = all_logits(model, tokens(3, 13));
      EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{3, 13, kVocabulary}));
      EXPECT_TRUE(out.isfinite().all().item<bool>()) << positions << " " << norm_position;
    }
  }
}

TEST_P(EveryKind, TrainsEveryParameterItUses) {
  auto model = make(tiny(GetParam()));
  const Tensor x = tokens(2, 13);
  model->logits(model->hidden({x, {}})).square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
  }
}

class CausalKind : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, CausalKind,
                         ::testing::Values("favor", "exact", "linear", "lsh", "identity", "mean"),
                         [](const auto& info) { return info.param; });

TEST_P(CausalKind, LeavesEarlierLogitsEqualWhenLaterTokensChange) {
  for (const char* positions : {"learned", "rotary"}) {
    ModelConfig c = tiny(GetParam());
    c.positions = positions;
    auto model = make(c);
    const Tensor x = tokens(2, 23);
    for (const std::int64_t kept : {1, 9, 22}) {
      Tensor changed = x.clone();
      changed.narrow(1, kept, 23 - kept).copy_(tokens(2, 23, 3).narrow(1, kept, 23 - kept));
      const Tensor before = all_logits(model, x), after = all_logits(model, changed);
      EXPECT_TRUE(before.narrow(1, 0, kept).equal(after.narrow(1, 0, kept))) << positions;
      EXPECT_GT(max_difference(before.narrow(1, kept, 1), after.narrow(1, kept, 1)), 0);
    }
  }
}

TEST_P(EveryKind, DoesNotSeeMaskedTokens) {
  for (const bool causal : {true, false}) {
    auto model = make(tiny(GetParam(), causal));
    const Tensor x = tokens(2, 12);
    Tensor mask = at::ones({2, 12}, at::kBool);
    mask[0][0] = false;
    mask[0][5] = false;
    mask.narrow(1, 9, 3).fill_(false);
    const Tensor changed = at::where(mask, x, (x + 4).remainder(kVocabulary));
    const Tensor before = all_logits(model, x, mask), after = all_logits(model, changed, mask);
    EXPECT_TRUE(before.isfinite().all().item<bool>());
    const Tensor real = mask.unsqueeze(-1);
    EXPECT_LE(max_difference(before * real, after * real), 1e-6) << causal;
    if (GetParam() != "identity" && !causal) {
      EXPECT_GT(max_difference(before * real, all_logits(model, x) * real), 1e-4);
    }
  }
}

class StreamingKind : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, StreamingKind,
                         ::testing::Values("favor", "near", "local", "exact", "linear", "identity",
                                           "mean"),
                         [](const auto& info) { return info.param; });

TEST_P(StreamingKind, DecodesAsTheFullPass) {
  for (const char* positions : {"learned", "sinusoidal", "rotary", "none"}) {
    for (const bool reversible : {false, true}) {
      ModelConfig c = tiny(GetParam());
      c.positions = positions;
      c.reversible = reversible;
      auto model = make(c);
      const Tensor x = tokens(2, 20);
      const Tensor want = all_logits(model, x);
      const double tolerance = 2e-5 * want.abs().max().item<double>();
      DecodeState state;
      std::int64_t at = 0;
      for (const std::int64_t length : {7, 1, 1, 4, 1, 6}) {
        const Tensor got = model->decode(x.narrow(1, at, length), state);
        at += length;
        EXPECT_LE(max_difference(got, want.select(1, at - 1)), tolerance) << positions << at;
      }
      EXPECT_EQ(state.position, 20);
    }
  }
}

TEST_P(StreamingKind, GoesOnFromReorderedStates) {
  auto model = make(tiny(GetParam()));
  const Tensor x = tokens(2, 9);
  DecodeState state;
  model->decode(x.narrow(1, 0, 8), state);
  const Tensor index = at::tensor({1, 1, 0}, at::kLong);
  DecodeState chosen = state.reorder(index);
  const Tensor next = x.narrow(1, 8, 1);
  const Tensor want = model->decode(next, state).index_select(0, index);
  EXPECT_LE(max_difference(model->decode(next.index_select(0, index), chosen), want), 1e-5);
}

TEST(Transformer, KeepsAStreamOfConstantSizeWithFavor) {
  for (const char* kind : {"favor", "near", "local"}) {
    ModelConfig c = tiny(kind);
    c.positions = "rotary";
    auto model = make(c);
    DecodeState state;
    model->decode(tokens(1, 4), state);
    const std::int64_t before = state.nbytes();
    for (int i = 0; i < 40; ++i) model->decode(tokens(1, 1, i), state);
    EXPECT_GT(before, 0);
    EXPECT_EQ(state.nbytes(), before) << kind;
  }
}

TEST(Transformer, SaysWhyItCannotStream) {
  DecodeState state;
  const auto refusal = [&](const ModelConfig& c) {
    auto model = make(c);
    return failure_of([&] { model->decode(tokens(1, 3), state); }).message;
  };
  EXPECT_EQ(refusal(tiny("linformer")),
            "decode: the model is bidirectional (model.causal = false) and cannot stream tokens");
  EXPECT_EQ(refusal(tiny("lsh")), "decode: lsh attention has no streaming state; use another kind");
}

TEST(Transformer, RefusesLearnedPositionsPastTheirEnd) {
  auto model = make(tiny("favor"));
  const std::string want =
      "model: learned positions end at model.max_length = 24, the sequence has 25 tokens; use a "
      "shorter one, or a model with rotary positions";
  EXPECT_EQ(failure_of([&] { all_logits(model, tokens(1, 25)); }).message, want);
  DecodeState state;
  model->decode(tokens(1, 24), state);
  EXPECT_EQ(failure_of([&] { model->decode(tokens(1, 1), state); }).message, want);
}

TEST(Transformer, ApproachesExactAttentionWithManyFeatures) {
  const Tensor x = tokens(2, 20);
  const auto logits = [&](const std::string& kind, std::int64_t features) {
    ModelConfig c = tiny(kind);
    c.attention.features = features;
    auto model = make(c);
    const at::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      if (item.key().ends_with("qkv.weight")) item.value().mul_(0.5);
    }
    return all_logits(model, x);
  };
  const Tensor exact = logits("exact", 1);
  const auto error = [&](std::int64_t features) {
    return ((logits("favor", features) - exact).norm() / exact.norm()).item<double>();
  };
  EXPECT_LT(error(4096), 0.01);
  EXPECT_LT(error(4096), 0.2 * error(8));
}

TEST(Rotary, MakesProductsDependOnTheDistanceAlone) {
  RotaryTables tables(8);
  const auto at_position = [&](const Tensor& x, std::int64_t position) {
    return rotate(x.view({1, 1, 1, 8}), tables.turns(position, 1, x.options())).flatten();
  };
  const Tensor q = at::arange(8, at::kDouble).sin(), k = at::arange(8, at::kDouble).cos();
  const auto product = [&](std::int64_t i, std::int64_t j) {
    return at_position(q, i).dot(at_position(k, j)).item<double>();
  };
  EXPECT_NEAR(product(7, 3), product(100004, 100000), 1e-9);
  EXPECT_GT(std::abs(product(7, 3) - product(7, 4)), 1e-3);
  EXPECT_TRUE(at_position(q, 0).equal(q));
  EXPECT_NEAR(at_position(q, 1)[0].item<double>(),
              std::cos(1) * q[0].item<double>() - std::sin(1) * q[1].item<double>(), 1e-12);
}

TEST(Transformer, DrawsProjectionsAsFunctionsOfTheirNumber) {
  auto model = make(tiny("favor"));
  const Tensor x = tokens(2, 10);
  const auto W = [&](std::int64_t layer) {
    return dynamic_cast<FavorCore&>(model->block(layer).core()).projection();
  };
  const Tensor first = all_logits(model, x), first_W = W(0);
  EXPECT_EQ(first_W.sizes(), (std::vector<std::int64_t>{2, 16, 8}));
  EXPECT_FALSE(W(0).equal(W(1)));
  model->redraw(3);
  EXPECT_EQ(model->draw(), 3);
  EXPECT_GT(max_difference(W(0), first_W), 0.1);
  EXPECT_GT(max_difference(all_logits(model, x), first), 1e-3);
  model->redraw(0);
  EXPECT_TRUE(W(0).equal(first_W));
  EXPECT_TRUE(all_logits(model, x).equal(first));
}

TEST(Transformer, DrawsAgainForRandomLinformerAndLsh) {
  for (const char* kind : {"linformer", "lsh"}) {
    ModelConfig c = tiny(kind);
    c.attention.linformer_projection = "random";
    auto model = make(c);
    const Tensor first = all_logits(model, tokens(2, 20));
    model->redraw(1);
    EXPECT_GT(max_difference(all_logits(model, tokens(2, 20)), first), 1e-4) << kind;
    model->redraw(0);
    EXPECT_TRUE(all_logits(model, tokens(2, 20)).equal(first)) << kind;
  }
}

TEST(Transformer, StartsFromTheSameWeightsForTheSameSeed) {
  const Transformer a(tiny("favor"), 5), b(tiny("favor"), 5), c(tiny("favor"), 6);
  const auto weight = [](const Transformer& m, const char* name) {
    return m->named_parameters()[name].detach();
  };
  const char* name = "layers.1.attention.qkv.weight";
  EXPECT_TRUE(weight(a, name).equal(weight(b, name)));
  EXPECT_FALSE(weight(a, name).equal(weight(c, name)));
  EXPECT_FALSE(weight(a, name).equal(weight(a, "layers.0.attention.qkv.weight")));
  EXPECT_NEAR(weight(a, name).std().item<double>(), 0.02, 0.002);
  EXPECT_NEAR(weight(a, "layers.1.attention.output.weight").std().item<double>(), 0.01, 0.002);
  EXPECT_EQ(weight(a, "layers.1.attention.qkv.bias").abs().max().item<double>(), 0);
}

TEST(Transformer, RunsInBfloat16CloseToFloat32) {
  for (const auto& kind : attention_kinds()) {
    auto model = make(tiny(kind));
    const Tensor want = all_logits(model, tokens(2, 20));
    for (auto& p : model->parameters()) p.set_data(p.detach().to(at::kBFloat16));
    const Tensor got = all_logits(model, tokens(2, 20));
    EXPECT_EQ(got.scalar_type(), at::kBFloat16);
    // lsh: a rounded query may fall into another bucket.
    const double error = (got.to(at::kFloat) - want).square().mean().sqrt().item<double>() /
                         want.square().mean().sqrt().item<double>();
    EXPECT_LT(error, kind == "lsh" ? 0.5 : 0.05) << kind;
  }
}

TEST(Transformer, ClassifiesAndMatchesSequencesWhateverTheirPadding) {
  for (const char* head : {"classify", "match"}) {
    ModelConfig c = tiny("favor", false);
    c.head = head;
    c.classes = 3;
    auto model = make(c);
    const at::NoGradGuard no_grad;
    Tensor mask = at::ones({2, 12}, at::kBool);
    mask.narrow(1, 8, 4).fill_(false);
    const auto answer = [&](const Tensor& x, const Tensor& m) {
      const ModelInput input{x, m}, other{tokens(2, 12, 2), {}};
      return c.head == "match" ? model->match(input, other) : model->classify(input);
    };
    const Tensor padded = answer(tokens(2, 12), mask);
    const Tensor cut = answer(tokens(2, 12).narrow(1, 0, 8), {});
    EXPECT_EQ(padded.sizes(), (std::vector<std::int64_t>{2, 3}));
    EXPECT_LE(max_difference(padded, cut), 1e-4 * cut.abs().max().item<double>());
    EXPECT_GT(max_difference(padded[0], padded[1]), 1e-4);
  }
}

}  // namespace
}  // namespace performer::models::testing
