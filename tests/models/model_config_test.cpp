#include "performer/models/model_config.h"

#include <gtest/gtest.h>

#include <functional>

#include "performer/core/config.h"
#include "performer/core/error.h"
#include "performer/models/model_cost.h"
#include "tests/models/tiny_model.h"

namespace performer::models::testing {
namespace {

using Change = std::function<void(ModelConfig&)>;

std::string refusal(const Change& change) {
  ModelConfig c = tiny("favor");
  change(c);
  try {
    check(c);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(ModelConfig, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(refusal([](auto&) {}), "no error");
  EXPECT_EQ(refusal([](auto& c) { c.heads = 7; }),
            "model.heads: must divide model.dim (16), got 7");
  EXPECT_EQ(refusal([](auto& c) { c.vocabulary = 0; }),
            "model.vocabulary: must be at least 1, got 0");
  EXPECT_EQ(refusal([](auto& c) { c.attention.kind = "sparse"; }),
            "model.attention.kind: unknown value \"sparse\"; known: favor, exact, linear, "
            "linformer, lsh, identity, mean");
  EXPECT_EQ(refusal([](auto& c) { c.layer_kinds = {"favor"}; }),
            "model.layer_kinds: needs one kind per layer (model.layers = 2) or none, got 1");
  EXPECT_EQ(refusal([](auto& c) { c.attention.features = 0; }),
            "model.attention.features: the kernel positive needs a projection; set at least 1, a "
            "generalised kernel such as relu, or model.attention.near for local attention alone");
  EXPECT_EQ(refusal([](auto& c) { c.attention.eps = 1e-6; }),
            "model.attention.eps: the kernel positive has no eps, got 1e-06; leave it negative");
  EXPECT_EQ(refusal([](auto& c) { c.attention.kernel = "softmax"; }).substr(0, 49),
            "model.attention.kernel: unknown value \"softmax\"; ");
  EXPECT_EQ(refusal([](auto& c) {
              c.layer_kinds = {"exact", "linformer"};
            }),
            "model.attention.kind: linformer mixes all positions; set model.causal = false");
  EXPECT_EQ(refusal([](auto& c) {
              c.attention.kind = "linformer", c.causal = false, c.attention.linformer_k = 600;
            }),
            "model.attention.linformer_k: must not exceed model.max_length (24), got 600");
  EXPECT_EQ(refusal([](auto& c) { c.attention.kind = "lsh", c.attention.lsh_buckets = 3; }),
            "model.attention.lsh_buckets: must be even, got 3");
  EXPECT_EQ(refusal([](auto& c) { c.positions = "rotary", c.dim = 6; }),
            "model.positions: rotary needs an even head width, model.dim / model.heads is 3");
  EXPECT_EQ(refusal([](auto& c) { c.dropout = 1; }), "model.dropout: must be in [0, 1), got 1");
  EXPECT_EQ(refusal([](auto& c) { c.head = "classify"; }),
            "model.classes: must be at least 2, got 0");
  EXPECT_EQ(refusal([](auto& c) { c.reversible = true, c.norm_position = "post"; }),
            "model.reversible: needs model.norm_position = \"pre\", got \"post\"");
}

TEST(ModelConfig, RefusesFarWeightsThatAreNotThoseOfTheNearOnes) {
  const auto near = [](const Change& change) {
    return refusal([&](auto& c) { c.attention.near = 4, change(c); });
  };
  EXPECT_EQ(near([](auto&) {}), "no error");
  EXPECT_EQ(near([](auto& c) { c.attention.features = 0; }), "no error");
  EXPECT_EQ(near([](auto& c) { c.attention.kernel = "relu"; }),
            "model.attention.near: needs a kernel that estimates exp(q.k) (positive, hyperbolic, "
            "trigonometric), got relu; set model.attention.near = 0");
  EXPECT_EQ(near([](auto& c) { c.attention.kernel = "loglinear"; }).substr(0, 69),
            "model.attention.near: the kernel loglinear has no norm terms, so its ");
  EXPECT_EQ(near([](auto& c) { c.attention.projection_norm = "sqrt_d"; }),
            "model.attention.projection_norm: sqrt_d underestimates exp(q.k) (at width 64 and "
            "|x+y|^2 = 16 by half), which near weights beside it do not; set \"chi\", or "
            "model.attention.near = 0");
  EXPECT_EQ(near([](auto& c) { c.attention.projection_norm = "sqrt_d", c.attention.features = 0; }),
            "no error");
  EXPECT_EQ(near([](auto& c) { c.attention.kind = "exact", c.attention.kernel = "relu"; }),
            "no error");  // which it does not name
}

TEST(ModelConfig, RefusesSizesThatNoMachineHoldsWithoutTakingTimeOrMemory) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(refusal([](auto& c) { c.layers = 1'000'000'000; }),
            "model.layers: must be at most 16384, got 1000000000");
  EXPECT_EQ(refusal([](auto& c) { c.dim = kHuge; }),
            "model.dim: must be at most 1048576, got 4611686018427387904");
  const std::vector<std::pair<std::string, Change>> sizes{
      {"model.vocabulary", [](auto& c) { c.vocabulary = kHuge; }},
      {"model.max_length", [](auto& c) { c.max_length = kHuge; }},
      {"model.heads", [](auto& c) { c.heads = kHuge; }},
      {"model.ff_dim", [](auto& c) { c.ff_dim = kHuge; }},
      {"model.classes", [](auto& c) { c.classes = kHuge; }},
      {"model.attention.features", [](auto& c) { c.attention.features = kHuge; }},
      {"model.attention.near", [](auto& c) { c.attention.near = kHuge; }},
      {"model.attention.redraw_interval", [](auto& c) { c.attention.redraw_interval = kHuge; }},
      {"model.attention.linformer_k", [](auto& c) { c.attention.linformer_k = kHuge; }},
      {"model.attention.lsh_hashes", [](auto& c) { c.attention.lsh_hashes = kHuge; }},
      {"model.attention.lsh_chunk", [](auto& c) { c.attention.lsh_chunk = kHuge; }},
      {"model.attention.lsh_buckets", [](auto& c) { c.attention.lsh_buckets = kHuge; }},
  };
  for (const auto& [key, change] : sizes) {
    EXPECT_TRUE(refusal(change).starts_with(key + ": must be at most ")) << refusal(change);
  }
}

TEST(ModelConfig, RefusesProductsThatOverflowOrPassEveryMemory) {
  const auto said =
      refusal([](auto& c) { c.layers = 1 << 14, c.dim = c.ff_dim = 1 << 20, c.heads = 1 << 10; });
  EXPECT_TRUE(said.starts_with("model: ")) << said;
  EXPECT_NE(
      said.find(" parameters, at most 1099511627776 are possible; lower model.layers (16384)"),
      std::string::npos)
      << said;
  EXPECT_TRUE(refusal([](auto& c) {
                c.layers = 1 << 14, c.max_length = std::int64_t{1} << 31;
                c.attention.kind = "linformer", c.attention.linformer_k = 1 << 20;
                c.causal = false;
              }).starts_with("model: more than 2^63 parameters, at most 1099511627776"));
}

TEST(ModelConfig, RefusesProjectionsBeyondTheLimitsOfTheOperator) {
  EXPECT_EQ(refusal([](auto& c) { c.dim = 1 << 20; }),
            "model.attention, where dim = model.dim / model.heads: dim must be at most 16384, got "
            "524288");
}

TEST(ModelCost, StaysAtTheLargestNumberWhereItWouldPassIt) {
  ModelConfig c = tiny("favor");
  c.layers = 1 << 14, c.dim = c.ff_dim = 1 << 20, c.vocabulary = 1 << 28;
  const auto cost = estimate(c, 1 << 20, std::int64_t{1} << 31, 4);
  EXPECT_EQ(cost.activation_bytes, INT64_MAX);
  EXPECT_GT(cost.parameters, 0);
  EXPECT_GT(cost.state_bytes, 0);
}

TEST(ModelConfig, AllowsPerformerRelu) {
  EXPECT_EQ(refusal([](auto& c) { c.attention.kernel = "relu", c.attention.features = 0; }),
            "no error");
}

TEST(ModelConfig, ListsItsFields) {
  ModelConfig c;
  const auto fields = list_fields(c);
  EXPECT_EQ(fields.front().name, "vocabulary");
  EXPECT_EQ(fields.back().name, "attention.lsh_buckets");
  const auto kind = std::find_if(fields.begin(), fields.end(),
                                 [](const Field& f) { return f.name == "attention.kind"; });
  ASSERT_NE(kind, fields.end());
  EXPECT_EQ(kind->choices.size(), 7U);
}

TEST(ModelCost, CountsTheParametersOfTheModel) {
  const std::vector<Change> changes{
      [](auto&) {},
      [](auto& c) { c.norm = "rms", c.activation = "swiglu", c.positions = "rotary"; },
      [](auto& c) { c.tied = false, c.norm_position = "post", c.activation = "relu"; },
      [](auto& c) { c.head = "classify", c.classes = 3; },
      [](auto& c) { c.head = "match", c.classes = 2, c.causal = false; },
      [](auto& c) {
        c.layer_kinds = {"lsh", "mean"};
      },
      [](auto& c) {
        c.layer_kinds = {"linformer", "linear"}, c.causal = false;
      },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    ModelConfig c = tiny("favor");
    changes[i](c);
    const Transformer model(c, 0);
    std::int64_t want = 0;
    for (const auto& p : model->parameters()) want += p.numel();
    EXPECT_EQ(estimate(c, 2, 16, 4).parameters, want) << "change " << i;
  }
}

TEST(ModelCost, KnowsTheSizeOfAStream) {
  for (const char* kind : {"favor", "near", "local", "linear", "mean", "identity"}) {
    auto model = make(tiny(kind));
    DecodeState state;
    model->decode(tokens(3, 9), state);
    EXPECT_EQ(estimate(tiny(kind), 3, 9, 4).state_bytes, state.nbytes()) << kind;
  }
  EXPECT_EQ(estimate(tiny("exact"), 3, 9, 4).state_bytes, 2 * 2 * 3 * 9 * 16 * 4);
}

TEST(ModelCost, CrossesExactAttentionAtTheBreakEvenLength) {
  ModelConfig favor, exact;
  favor.vocabulary = exact.vocabulary = 30;
  exact.attention.kind = "exact";
  const std::int64_t length = break_even_length(favor);
  EXPECT_EQ(length, 1024);  // causal, m = 256: 4 m d against L d
  const auto flops = [](const ModelConfig& c, std::int64_t n) {
    return estimate(c, 1, n, 4).flops_per_token;
  };
  EXPECT_LE(flops(favor, length), flops(exact, length));
  EXPECT_GT(flops(favor, length - 1), flops(exact, length - 1));
  EXPECT_EQ(flops(favor, 100), flops(favor, 100000));
}

TEST(ModelCost, AddsTheNearFieldToTheBreakEvenLength) {
  ModelConfig c;
  c.attention.near = 64;
  EXPECT_EQ(break_even_length(c), 1024 + 3 * 64);  // causal: 1.5 blocks a token, L / 2 exactly
  c.attention.features = 0;
  EXPECT_EQ(break_even_length(c), 3 * 64);
  c.causal = false;
  EXPECT_EQ(break_even_length(c), 3 * 64);
}

TEST(ModelCost, KeepsLessWhenBlocksAreRecomputed) {
  ModelConfig c = tiny("favor");
  c.layers = 12;
  const auto bytes = [&] { return estimate(c, 4, 16, 4).activation_bytes; };
  const std::int64_t plain = bytes();
  c.checkpointing = true;
  const std::int64_t checkpointed = bytes();
  c.checkpointing = false, c.reversible = true;
  const std::int64_t reversible = bytes();
  c.layers = 24;
  EXPECT_EQ(bytes(), reversible);
  EXPECT_LT(reversible, checkpointed);
  EXPECT_LT(2 * checkpointed, plain);
}

}  // namespace
}  // namespace performer::models::testing
