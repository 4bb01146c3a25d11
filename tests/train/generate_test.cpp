#include "performer/train/generate.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "tests/models/tiny_model.h"

namespace performer::train {
namespace {

using models::testing::make;
using models::testing::tiny;
using Tokens = std::vector<std::int64_t>;

models::Transformer rotary_model(const std::string& kind) {
  auto config = tiny(kind);
  config.positions = "rotary";
  return make(config);
}

/// Sequence number `sequence`, alone and token by token: the definition.
Tokens one_by_one(models::Transformer& model, const Tokens& prompt, const SamplingOptions& options,
                  std::int64_t sequence) {
  const at::NoGradGuard no_grad;
  models::DecodeState state;
  auto logits = model->decode(at::tensor(prompt, at::kLong).unsqueeze(0), state);
  Tokens tokens;
  for (std::int64_t i = 0; i < options.length; ++i) {
    const auto token = sample_token(logits[0], options, sequence, i);
    if (token == options.stop) break;
    tokens.push_back(token);
    logits = model->decode(at::full({1, 1}, token, at::kLong), state);
  }
  return tokens;
}

TEST(Generate, ABatchHasTheSequencesOfSingleRuns) {
  for (const char* kind : {"favor", "linear", "exact", "mean"}) {
    auto model = rotary_model(kind);
    SamplingOptions options;
    options.length = 60;
    options.seed = 5;
    options.stop = 3;  // sequences end at different places
    const auto batch = generate(model, {1, 4, 2}, options, 7);
    ASSERT_EQ(batch.sequences.size(), 7U);
    for (std::int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ(batch.sequences[static_cast<std::size_t>(i)],
                one_by_one(model, {1, 4, 2}, options, i))
          << kind << " " << i;
    }
    EXPECT_FALSE(batch.graph);
    EXPECT_EQ(batch.eager_reason, "graphs are for CUDA");
  }
}

TEST(Generate, AShorterRunIsABeginning) {
  auto model = rotary_model("favor");
  SamplingOptions options;
  options.length = 20;
  const auto longer = generate(model, {1}, options, 3).sequences;
  options.length = 1;
  const auto first = generate(model, {1}, options, 3);
  EXPECT_EQ(first.kernel, "");
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(longer[i].size(), 20U);
    EXPECT_EQ(first.sequences[i], Tokens{longer[i][0]});
  }
  std::vector<std::int64_t> seen;
  options.length = 20;
  const auto stopped = generate(model, {1}, options, 3, [&](std::int64_t i) {
    seen.push_back(i);
    return i < 4;
  });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(stopped.sequences[2], Tokens(longer[2].begin(), longer[2].begin() + 4));
}

}  // namespace
}  // namespace performer::train
