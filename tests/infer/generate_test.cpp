#include "performer/infer/generate.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "performer/core/error.h"
#include "tests/models/tiny_model.h"
#include "tests/support/failure.h"

namespace performer::infer {
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
    if (std::ranges::count(options.stop, token) > 0) break;
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
    options.stop = {3, 5};  // sequences end at different places
    const auto batch = generate(model, {1, 4, 2}, options, 7);
    ASSERT_EQ(batch.sequences.size(), 7U);
    for (std::int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ(batch.sequences[static_cast<std::size_t>(i)],
                one_by_one(model, {1, 4, 2}, options, i))
          << kind << " " << i;
    }
    EXPECT_FALSE(batch.graph);
    EXPECT_EQ(batch.eager_reason, "CUDA graphs need a GPU");
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

TEST(Generate, NumbersThatMakeNoDistributionAreRefused) {
  auto model = rotary_model("favor");
  const auto code_of = [&](const SamplingOptions& options, std::int64_t count = 1) {
    return testing::failure_of([&] { generate(model, {1}, options, count); }).code;
  };
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const double temperature : {kInfinite, -kInfinite, std::nan(""), -1.0}) {
    EXPECT_EQ(code_of({.temperature = temperature}), ExitCode::kUsage) << temperature;
  }
  for (const double top_p : {kInfinite, std::nan(""), -0.5, 0.0, 1.5}) {
    EXPECT_EQ(code_of({.top_p = top_p}), ExitCode::kUsage) << top_p;
  }
  EXPECT_EQ(code_of({.top_k = -1}), ExitCode::kUsage);
  EXPECT_EQ(code_of({.length = 0}), ExitCode::kUsage);
  EXPECT_EQ(code_of({.length = std::int64_t{1} << 40}), ExitCode::kUsage);
  EXPECT_EQ(code_of({}, 0), ExitCode::kUsage);
}

}  // namespace
}  // namespace performer::infer
