// The options that make models of others expressible, each against its definition.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "performer/core/error.h"
#include "performer/models/model_cost.h"
#include "performer/models/transformer.h"
#include "tests/models/tiny_model.h"
#include "tests/support/failure.h"

namespace performer::models::testing {
namespace {

using performer::testing::failure_of;

std::set<std::string> names_of(Transformer& model) {
  std::set<std::string> names;
  for (const auto& item : model->named_parameters()) names.insert(item.key());
  return names;
}

Tensor parameter(Transformer& model, const std::string& name) {
  return model->named_parameters()[name].detach();
}

// Everything at once: heads of their own width, three queries to a key.
ModelConfig grouped(const std::string& kind) {
  ModelConfig c = tiny(kind);
  c.heads = 6;
  c.kv_heads = 2;
  c.head_width = 4;
  c.positions = "rotary";
  c.norm = "rms";
  c.activation = "swiglu";
  c.qkv_bias = c.attention_output_bias = c.ff_bias = false;
  c.tied = false;
  return c;
}

class GroupedKind : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, GroupedKind,
                         ::testing::Values("exact", "favor", "near", "local", "linear"),
                         [](const auto& info) { return info.param; });

TEST_P(GroupedKind, HeadsEqualHeadsThatHaveTheSameKeys) {
  for (const bool causal : {true, false}) {
    ModelConfig c = grouped(GetParam());
    c.causal = causal;
    c.attention.per_head = false;
    auto few = make(c);
    c.kv_heads = 0;
    auto many = make(c);
    const at::NoGradGuard no_grad;
    for (auto& item : many->named_parameters()) {
      Tensor value = parameter(few, item.key());
      if (item.key().ends_with("qkv.weight")) {
        const auto parts = value.split_with_sizes({24, 8, 8});
        const auto repeated = [](const Tensor& rows) {
          return rows.view({2, 4, 16}).repeat_interleave(3, 0).reshape({24, 16});
        };
        value = at::cat({parts[0], repeated(parts[1]), repeated(parts[2])});
      }
      item.value().copy_(value);
    }
    Tensor mask = at::ones({2, 13}, at::kBool);
    mask.narrow(1, 10, 3)[1].fill_(false);
    for (const auto& m : {Tensor(), mask}) {
      const Tensor a = all_logits(few, tokens(2, 13), m), b = all_logits(many, tokens(2, 13), m);
      EXPECT_LT(max_difference(a.narrow(1, 0, 10), b.narrow(1, 0, 10)), 1e-4) << causal;
    }
  }
}

TEST_P(GroupedKind, StreamsEqualTheWholeSequence) {
  auto model = make(grouped(GetParam()));
  const Tensor x = tokens(2, 17);
  const Tensor whole = all_logits(model, x);
  DecodeState state;
  Tensor last = model->decode(x.narrow(1, 0, 6), state);
  for (std::int64_t i = 6; i < 17; ++i) {
    EXPECT_LT(max_difference(last, whole.select(1, i - 1)), 1e-4) << i;
    last = model->decode(x.narrow(1, i, 1), state);
  }
  EXPECT_LT(max_difference(last, whole.select(1, 16)), 1e-4);
}

TEST(ModelForm, CountsTheParametersOfEveryOption) {
  const auto count = [](const ModelConfig& c) {
    Transformer model(c, 1);
    std::int64_t total = 0;
    for (const auto& p : model->parameters()) total += p.numel();
    return total;
  };
  const auto expect_counted = [&](const ModelConfig& c, const char* what) {
    EXPECT_EQ(estimate(c, {.batch = 1, .length = 1}).parameters, count(c)) << what;
  };
  expect_counted(grouped("favor"), "grouped");
  ModelConfig c = tiny("exact", /*causal=*/false);
  c.norm_position = "post";
  c.embedding_norm = true;
  c.token_types = 3;
  c.head_transform = c.logits_bias = true;
  expect_counted(c, "bert");
  c.tied = false;
  expect_counted(c, "untied");
  c.head = "none", c.head_transform = c.logits_bias = false;
  expect_counted(c, "without a head");
  c = tiny("lsh");
  c.qkv_bias = false;
  expect_counted(c, "lsh");
}

TEST(ModelForm, StatesOfGroupedHeadsAreAsSmallAsSaid) {
  for (const char* kind : {"favor", "near"}) {
    const ModelConfig c = grouped(kind);
    auto model = make(c);
    DecodeState state;
    model->decode(tokens(2, 13), state);
    EXPECT_EQ(estimate(c, 2, 13, 4).state_bytes, state.nbytes()) << kind;
  }
}

TEST(ModelForm, LeavesOutTheBiasesThatAreOff) {
  auto model = make(grouped("exact"));
  for (const auto& name : names_of(model)) EXPECT_FALSE(name.ends_with("bias")) << name;
  ModelConfig c = tiny("exact");
  c.qkv_bias = false;
  auto other = make(c);
  EXPECT_FALSE(names_of(other).contains("layers.0.attention.qkv.bias"));
  EXPECT_TRUE(names_of(other).contains("layers.0.attention.output.bias"));
  EXPECT_TRUE(names_of(other).contains("layers.0.feed_forward.input.bias"));
}

TEST(ModelForm, EmbedsAsBertDoes) {
  ModelConfig c = tiny("exact", /*causal=*/false);
  c.layers = 1;
  c.embedding_norm = true;
  c.token_types = 2;
  c.norm_eps = 1e-2;
  c.head = "none";
  c.norm_position = "post";
  auto model = make(c);
  const at::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {  // the block becomes two norms
    if (item.key().find(".output.") != std::string::npos) item.value().zero_();
    if (item.key() == "embedding.norm.bias") item.value().fill_(0.5);
  }
  const Tensor x = tokens(1, 5);
  const Tensor sum = parameter(model, "embedding.weight").index_select(0, x[0]) +
                     parameter(model, "embedding.positions").narrow(0, 0, 5) +
                     parameter(model, "embedding.types")[0];
  const auto norm = [](const Tensor& t) {
    const Tensor centred = t - t.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + 1e-2).sqrt();
  };
  const Tensor want = norm(norm(norm(sum.to(at::kDouble)) + 0.5));
  EXPECT_LT(max_difference(model->hidden({x, {}})[0], want), 1e-5);
}

TEST(ModelForm, ScalesEmbeddingsByTheShareOfMaskedTokens) {
  ModelConfig c = tiny("exact", /*causal=*/false);
  c.positions = "none";
  c.token_dropout = 4;
  Embedding embedding(c);
  const at::NoGradGuard no_grad;
  embedding->weight.copy_(at::arange(1, 1 + kVocabulary * 16).view({kVocabulary, 16}));
  const Tensor x = at::tensor({1, 4, 3, 2, 4, 4, 9, 9}, at::kLong).view({2, 4});
  Tensor mask = at::ones({2, 4}, at::kBool);
  mask[1].narrow(0, 3, 1).fill_(false);  // 3 real tokens, 2 of them masked
  const Tensor got = embedding->forward(x, 0, {}, mask);
  Tensor want = embedding->weight.index_select(0, x.view({-1})).view({2, 4, 16}).clone();
  want.masked_fill_(x.eq(4).unsqueeze(-1), 0);
  want[0] *= 0.88 / (1 - 1.0 / 4);
  want[1] *= 0.88 / (1 - 2.0 / 3);
  EXPECT_LT(max_difference(got / want.clamp_min(1), want / want.clamp_min(1)), 1e-5);
  const Tensor all = embedding->forward(at::full({1, 3}, 4, at::kLong), 0);
  EXPECT_TRUE(all.eq(0).all().item<bool>()) << "and not 0 / 0";
  const Tensor unmasked = embedding->forward(at::full({1, 3}, 5, at::kLong), 0);
  EXPECT_LT(max_difference(unmasked[0][0] / embedding->weight[5], at::full({16}, 0.88)), 1e-6);
}

TEST(ModelForm, TransformsBeforeTheOutputLayer) {
  for (const char* activation : {"gelu", "gelu_tanh", "relu"}) {
    ModelConfig c = tiny("exact", /*causal=*/false);
    c.activation = activation;
    c.head_transform = c.logits_bias = true;
    auto model = make(c);
    const at::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      if (item.key().ends_with("bias")) {
        item.value().copy_(at::linspace(-1, 1, item.value().numel()));
      }
    }
    const Tensor h = at::linspace(-2, 2, 48, at::kDouble).view({3, 16});
    const auto p = [&](const char* name) { return parameter(model, name).to(at::kDouble); };
    const Tensor u = at::linear(h, p("output.transform.dense.weight"),  //
                                p("output.transform.dense.bias"));
    const Tensor f = c.activation == "relu" ? u.clamp_min(0)
                     : c.activation == "gelu"
                         ? 0.5 * u * (1 + (u / std::sqrt(2.0)).erf())
                         : 0.5 * u * (1 + (std::sqrt(2 / M_PI) * (u + 0.044715 * u.pow(3))).tanh());
    const Tensor n =
        (f - f.mean(-1, true)) / (f.var(-1, /*unbiased=*/false, /*keepdim=*/true) + 1e-5).sqrt();
    const Tensor want =
        at::linear(n * p("output.transform.norm.weight") + p("output.transform.norm.bias"),
                   p("embedding.weight"), p("output.bias"));
    EXPECT_LT(max_difference(model->logits(h.to(at::kFloat)), want), 1e-4) << activation;
  }
}

TEST(ModelForm, TurnsByTheBaseOrByStoredFrequencies) {
  ModelConfig c = tiny("exact");
  c.positions = "rotary";
  auto plain = make(c);
  c.rotary_frequencies = "stored";
  auto stored = make(c);
  const Tensor x = tokens(2, 20);
  EXPECT_LT(max_difference(all_logits(plain, x), all_logits(stored, x)), 1e-4);
  EXPECT_EQ(names_of(plain), names_of(stored)) << "frequencies are no parameters";
  c.rotary_base = 500;
  auto other = make(c);
  EXPECT_GT(max_difference(all_logits(other, x), all_logits(stored, x)), 1e-3);
  auto copied = make(c);
  ASSERT_EQ(copied->named_buffers().size(), 1U);
  copied->named_buffers()["rotary.frequencies"].copy_(
      at::pow(10000.0, at::arange(0, 8, 2).div(-8.0)));
  EXPECT_LT(max_difference(all_logits(copied, x), all_logits(stored, x)), 1e-4);
  c.rotary_frequencies = "base", c.rotary_base = 10000;
  auto again = make(c);
  EXPECT_TRUE(all_logits(again, x).equal(all_logits(plain, x)));
}

TEST(ModelForm, RefusesWhatDoesNotGoTogether) {
  const auto refusal = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig c = tiny("favor");
    change(c);
    const auto failure = failure_of([&] { check(c); });
    EXPECT_EQ(failure.code, ExitCode::kUsage);
    return failure.message;
  };
  EXPECT_EQ(refusal([](auto& c) { c.kv_heads = 3; }),
            "model.kv_heads: must divide model.heads (2), got 3");
  EXPECT_EQ(refusal([](auto& c) { c.kv_heads = 1, c.attention.kind = "lsh"; }),
            "model.kv_heads: attention of kind lsh has as many keys as queries; set 0, or a kind "
            "of favor, exact or linear, got 1");
  EXPECT_EQ(refusal([](auto& c) { c.head_width = 3, c.positions = "rotary"; }),
            "model.positions: rotary needs an even head width, model.head_width is 3");
  EXPECT_EQ(refusal([](auto& c) { c.norm_eps = 0; }),
            "model.norm_eps: must be above 0 and below 1, got 0");
  EXPECT_EQ(refusal([](auto& c) { c.rotary_base = NAN; }),
            "model.rotary_base: must be from 1 to 1e12, got nan");
  EXPECT_EQ(refusal([](auto& c) { c.token_dropout = 11, c.causal = false; }),
            "model.token_dropout: must be below model.vocabulary (11), got 11");
  EXPECT_EQ(refusal([](auto& c) { c.token_dropout = 1; }),
            "model.token_dropout: needs model.causal = false, got 1");
  EXPECT_EQ(refusal([](auto& c) { c.head = "none", c.logits_bias = true; }),
            "model.logits_bias: is a part of the head lm, this one is none");
  EXPECT_EQ(refusal([](auto& c) { c.head_transform = true, c.activation = "swiglu"; }),
            "model.head_transform: needs an activation of one branch, got model.activation = "
            "\"swiglu\"");
}

}  // namespace
}  // namespace performer::models::testing
