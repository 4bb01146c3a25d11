#include "performer/fit/fit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "performer/models/favor_core.h"
#include "performer/ops/projection/grid.h"
#include "performer/run/tensor_file.h"
#include "tests/fit/sharp_model.h"

namespace performer::fit {
namespace {

using models::Transformer;

double output_error(Transformer& exact, Transformer& converted, const Samples& samples) {
  const at::NoGradGuard no_grad;
  const auto input = samples.batch(1000, 16, at::kCPU);
  const auto a = exact->all_hidden(input).back(), b = converted->all_hidden(input).back();
  const auto real = input.key_mask.unsqueeze(-1);
  return (((a - b) * real).norm() / (a * real).norm()).item<double>();
}

class FitOf : public ::testing::TestWithParam<bool> {};

TEST_P(FitOf, EveryStageComesNearerToTheExactModel) {
  const bool causal = GetParam();
  Transformer exact = sharp_model(exact_config(causal));
  Transformer converted = converted_from(exact, causal ? 4 : 0);
  const Samples samples(Text(), data::byte_space(), {.length = 32, .seed = 2});
  FitOptions options;
  options.rows = 8, options.attention_steps = 60, options.model_steps = 40;
  std::vector<double> losses;
  options.progress = [&](const Progress& p) {
    if (p.stage == "attention") losses.push_back(p.loss);
  };
  const double before = output_error(exact, converted, samples);
  Fit fit(exact, converted, samples, options);
  fit.calibrate();
  fit.fit_attention();
  const double after_attention = output_error(exact, converted, samples);
  fit.fit_model();
  const double after_model = output_error(exact, converted, samples);
  fit.round();
  const double rounded = output_error(exact, converted, samples);
  ASSERT_EQ(losses.size(), 60U);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  EXPECT_LT(after_attention, 0.8 * before);
  EXPECT_LT(after_model, after_attention);
  EXPECT_NEAR(rounded, after_model, 0.02 * before);
}

INSTANTIATE_TEST_SUITE_P(Directions, FitOf, ::testing::Bool());

TEST(FitTest, LeavesTheWeightsAloneUnlessAskedFor) {
  Transformer exact = sharp_model(exact_config(false));
  for (const std::int64_t steps : {0, 2}) {
    Transformer converted = converted_from(exact, 0);
    const Samples samples(Text(), data::byte_space(), {.length = 16, .seed = 2});
    FitOptions options;
    options.rows = 2, options.attention_steps = 2, options.model_steps = 2;
    options.weight_steps = steps;
    Fit fit(exact, converted, samples, options);
    fit.calibrate(), fit.fit_attention(), fit.fit_model();
    bool same = true;
    const auto converted_weights = converted->named_parameters();
    for (const auto& item : exact->named_parameters()) {
      same = same && at::equal(item.value(), converted_weights[item.key()]);
    }
    EXPECT_EQ(same, steps == 0);
  }
}

TEST(FitTest, RoundsRowsToTheGrid) {
  Transformer exact = sharp_model(exact_config(false));
  Transformer converted = converted_from(exact, 0);
  const Samples samples(Text(), data::byte_space(), {.length = 16, .seed = 2});
  FitOptions options;
  options.rows = 2, options.attention_steps = 3;
  Fit fit(exact, converted, samples, options);
  fit.fit_attention();
  auto& core = dynamic_cast<models::FavorCore&>(converted->block(0).core());
  const auto on_grid = [&] {
    const at::Tensor rows = core.fitted()->key_weight.to(at::kDouble);
    return at::equal(rows, round_to_grid(rows));
  };
  EXPECT_FALSE(on_grid());
  fit.round();
  EXPECT_TRUE(on_grid());
}

TEST(SamplesTest, AreAFunctionOfTheirNumber) {
  const Samples samples(Text(), data::byte_space(), {.length = 32, .seed = 2});
  const auto a = samples.batch(5, 4, at::kCPU), b = samples.batch(5, 4, at::kCPU);
  EXPECT_TRUE(at::equal(a.tokens, b.tokens));
  EXPECT_FALSE(at::equal(a.tokens, samples.batch(6, 4, at::kCPU).tokens.narrow(1, 0, 1)));
  EXPECT_LE(a.tokens.size(1), 32);
  EXPECT_TRUE(a.key_mask.all().item<bool>());  // nothing is padded
  EXPECT_EQ(a.tokens.select(1, 0).eq(data::byte_space().bos).sum().item<std::int64_t>(), 4);
  EXPECT_EQ(a.tokens.eq(data::byte_space().eos).sum().item<std::int64_t>(), 4);
}

}  // namespace
}  // namespace performer::fit
