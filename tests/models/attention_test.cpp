#include "performer/models/attention.h"

#include <gtest/gtest.h>

#include "performer/models/favor_core.h"
#include "tests/models/tiny_model.h"

// Each kind against its formula, written out.
namespace performer::models::testing {
namespace {

constexpr std::int64_t kLength = 12;

Tensor wave(at::IntArrayRef sizes, double rate) {
  return (at::arange(c10::multiply_integers(sizes), at::kDouble) * rate).sin().view(sizes) * 2;
}

Heads some_heads() {
  return {wave({2, 2, kLength, 8}, 1.3), wave({2, 2, kLength, 8}, 0.7),
          wave({2, 2, kLength, 8}, 2.1)};
}

Tensor some_mask() {
  Tensor mask = at::ones({2, kLength}, at::kBool);
  mask[0][3] = false;
  mask[1].narrow(0, 7, 5).fill_(false);
  return mask;
}

Tensor keys_seen(bool causal, const Tensor& mask) {
  const Tensor all = at::ones({kLength, kLength}, at::kBool);
  return (causal ? all.tril() : all).logical_and(mask.unsqueeze(1).unsqueeze(1));
}

Tensor softmax_attention(const Heads& h, const Tensor& seen, double scale) {
  const Tensor logits = at::matmul(h.q, h.k.transpose(-1, -2)) * scale;
  return at::matmul(logits.masked_fill(seen.logical_not(), -1e300).softmax(-1), h.v);
}

TEST(AttentionCore, ExactIsTheSoftmaxOfTheKeysSeen) {
  for (const bool causal : {true, false}) {
    const auto core = make_attention_core(tiny("exact", causal), 0);
    const Tensor got = core->forward(some_heads(), some_mask());
    const Tensor want =
        softmax_attention(some_heads(), keys_seen(causal, some_mask()), 1 / std::sqrt(8.0));
    EXPECT_LE(max_difference(got, want), 1e-12) << causal;
  }
}

// Blocks of 4 tokens, each row's from its first real one on.
Tensor near_keys_seen(bool causal) {
  const Tensor block = at::arange(kLength).floor_divide(4);
  const Tensor apart = block.unsqueeze(1) - block;  // [L, L]
  const Tensor near = causal ? apart.ge(0).logical_and(apart.le(1)) : apart.abs().le(1);
  return near.logical_and(keys_seen(causal, some_mask()));
}

TEST(AttentionCore, LocalIsTheSoftmaxOfTheNearKeys) {
  for (const bool causal : {true, false}) {
    ModelConfig c = tiny("local", causal);
    c.attention.near = 4;
    const auto core = make_attention_core(c, 0);
    const Tensor got = core->forward(some_heads(), some_mask());
    const Tensor want = softmax_attention(some_heads(), near_keys_seen(causal), 1 / std::sqrt(8.0));
    EXPECT_LE(max_difference(got, want), 1e-12) << causal;
    core->redraw(1);  // nothing to draw
    EXPECT_EQ(max_difference(core->forward(some_heads(), some_mask()), got), 0);
  }
}

TEST(AttentionCore, NearIsTheOperatorsNearField) {
  const ModelConfig c = tiny("near");
  const auto core = std::make_shared<FavorCore>(c, 0);
  const Heads h = some_heads();
  FavorOptions options;
  options.causality = Causality::kCausal;
  options.near = 3;
  const Tensor want = favor_attention(h.q, h.k, h.v, core->projection(), options);
  EXPECT_EQ(max_difference(core->forward(h, {}), want), 0);
}

TEST(AttentionCore, LinearHasNoNearField) {
  ModelConfig c = tiny("linear");
  const Tensor want = make_attention_core(c, 0)->forward(some_heads(), {});
  c.attention.near = 4;
  EXPECT_EQ(max_difference(make_attention_core(c, 0)->forward(some_heads(), {}), want), 0);
}

TEST(AttentionCore, MeanIsTheMeanOfTheValuesSeen) {
  for (const bool causal : {true, false}) {
    const auto core = make_attention_core(tiny("mean", causal), 0);
    const Tensor got = core->forward(some_heads(), some_mask());
    const Tensor want = softmax_attention(some_heads(), keys_seen(causal, some_mask()), 0);
    EXPECT_LE(max_difference(got, want), 1e-12) << causal;
  }
}

TEST(AttentionCore, IdentityIsTheValues) {
  const auto core = make_attention_core(tiny("identity"), 0);
  const Heads heads = some_heads();
  EXPECT_TRUE(core->forward(heads, {}).is_same(heads.v));
}

TEST(AttentionCore, LinearIsTheRatioOfEluFeatures) {
  const auto core = make_attention_core(tiny("linear"), 0);
  const Heads h = some_heads();
  const Tensor weights = at::matmul(at::elu(h.q) + 1, (at::elu(h.k) + 1).transpose(-1, -2)).tril();
  const Tensor want = at::matmul(weights / weights.sum(-1, true), h.v);
  EXPECT_LE(max_difference(core->forward(h, {}), want), 1e-12);
}

TEST(AttentionCore, LinformerAttendsToMixturesOfRealKeys) {
  const auto core = make_attention_core(tiny("linformer"), 0);
  for (auto& p : core->parameters()) p.set_data(wave(p.sizes(), p.numel() % 7 + 0.9));
  const auto parameters = core->named_parameters();
  Heads h = some_heads();
  const Tensor got = core->forward(h, some_mask());
  const Tensor real = some_mask().view({2, 1, kLength, 1});
  h.k = at::matmul(parameters["key_projection"].narrow(1, 0, kLength), h.k * real);
  h.v = at::matmul(parameters["value_projection"].narrow(1, 0, kLength), h.v * real);
  const Tensor all = at::ones({kLength, 8}, at::kBool);
  EXPECT_LE(max_difference(got, softmax_attention(h, all, 1 / std::sqrt(8.0))), 1e-12);
}

// With chunks as long as the sequence, a token sees its whole bucket: two tokens of one bucket in
// one round. Many buckets of few tokens are covered by the tests of causality and masks.
TEST(AttentionCore, LshAttendsToTheOtherTokensOfABucket) {
  for (const bool causal : {true, false}) {
    ModelConfig c = tiny("lsh", causal);
    c.attention.lsh_chunk = kLength;
    c.attention.lsh_buckets = 2;
    c.attention.lsh_hashes = 1;
    const auto core = make_attention_core(c, 0);
    Heads h = some_heads();
    h.q = h.q.abs() + wave({8}, 1) * 3;  // near one direction: one bucket
    h.k = h.q / h.q.norm(2, -1, true);
    const Tensor self = at::eye(kLength, at::kBool);
    const Tensor mask = at::ones({2, kLength}, at::kBool);
    Tensor seen = keys_seen(causal, mask).logical_and(self.logical_not());
    seen = seen.logical_or(self.logical_and(seen.any(-1, true).logical_not()));
    const Tensor want = softmax_attention(h, seen, 1);
    EXPECT_LE(max_difference(core->forward({h.q, h.q, h.v}, {}), want), 1e-6) << causal;
  }
}

TEST(Attention, ProjectsQueriesKeysAndValuesInThisOrder) {
  Attention layer(tiny("exact"), 0);
  for (auto& p : layer->parameters()) p.set_data(wave(p.sizes(), 1.1 + p.numel() % 5) * 0.3);
  const auto parameters = layer->named_parameters();
  const Tensor x = wave({2, kLength, 16}, 0.9);
  const auto project = [&](const char* name) {
    return at::matmul(x, parameters[std::string(name) + ".weight"].t()) +
           parameters[std::string(name) + ".bias"];
  };
  const auto heads = [](const Tensor& t) { return t.view({2, kLength, 2, 8}).transpose(1, 2); };
  const auto parts = project("qkv").chunk(3, -1);
  const Heads h{heads(parts[0].contiguous()), heads(parts[1].contiguous()),
                heads(parts[2].contiguous())};
  const Tensor seen = keys_seen(true, at::ones({2, kLength}, at::kBool));
  const Tensor mixed = softmax_attention(h, seen, 1 / std::sqrt(8.0)).transpose(1, 2).flatten(2);
  const Tensor want =
      at::matmul(mixed, parameters["output.weight"].t()) + parameters["output.bias"];
  EXPECT_LE(max_difference(layer->forward(x, {}), want), 1e-12);
}

}  // namespace
}  // namespace performer::models::testing
