#include "performer/infer/attention_quality.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "performer/infer/twin.h"
#include "performer/models/random_projection.h"
#include "performer/ops/analysis/quality.h"
#include "tests/models/tiny_model.h"

namespace performer::infer {
namespace {

using models::testing::all_logits;
using models::testing::make;
using models::testing::max_difference;
using models::testing::tiny;
using models::testing::tokens;

// Rows of two lengths.
QualitySample sample_of(std::vector<std::int64_t> features = {8, 32}) {
  return {{tokens(1, 20)[0], tokens(1, 13, 3)[0]}, std::move(features), 64};
}

run::Recipe recipe_of(const models::ModelConfig& config) {
  run::Recipe recipe;
  recipe.model = config;
  return recipe;
}

TEST(AttentionQualityTest, NumbersAreThoseOfEachHeadOnEachRow) {
  auto model = make(tiny("exact"));
  const auto sample = sample_of();
  const auto all = attention_quality(model, sample);
  ASSERT_EQ(all.size(), 4U);
  const auto& found = all[3];  // layer 1, head 1
  EXPECT_EQ(found.layer, 1);
  EXPECT_EQ(found.head, 1);
  double norms = 0, sums = 0, squares = 0, uniform = 0, predicted = 0;
  for (const auto& row : sample.rows) {
    model->all_hidden({row.unsqueeze(0), {}}, [&](std::int64_t layer, const models::Heads& heads) {
      if (layer != 1) return;
      norms += heads.k.select(1, 1).square().sum(-1).mean().item<double>() / std::sqrt(8.0) / 2;
      models::AttentionConfig plain;
      plain.features = 32;
      QualityOptions options;
      options.favor.causality = Causality::kCausal;
      const auto q = approximation_quality(heads.q, heads.k, heads.v,
                                           models::draw_for(plain, {2, 8, 1}, 0), options);
      sums += q.squared_sum[1].item<double>() / 2;
      squares += std::pow(q.error[1].item<double>(), 2) / 2;
      uniform += std::pow(q.uniform_error[1].item<double>(), 2) / 2;
      predicted += q.predicted_error[1].item<double>() / 2;
    });
  }
  EXPECT_NEAR(found.key_norm, norms, 1e-5 * norms);
  EXPECT_NEAR(found.squared_sum, sums, 1e-9 * sums);
  EXPECT_NEAR(found.uniform_error, std::sqrt(uniform), 1e-9);
  ASSERT_EQ(found.by_features.size(), 2U);
  EXPECT_EQ(found.by_features[1].features, 32);
  EXPECT_NEAR(found.by_features[1].error, std::sqrt(squares), 1e-9);
  EXPECT_NEAR(found.by_features[1].predicted, predicted, 1e-9 * predicted);
  EXPECT_TRUE(std::isnan(found.own.error));
  EXPECT_EQ(found.beats_average(), found.by_features[1].error < found.uniform_error);
}

TEST(AttentionQualityTest, AModelsOwnFeaturesAreMeasuredBesideOthers) {
  auto model = make(tiny("favor", /*causal=*/false));  // m = 16
  const auto all = attention_quality(model, sample_of({16}));
  for (const auto& head : all) {
    EXPECT_EQ(head.own.features, 16);
    EXPECT_DOUBLE_EQ(head.own.error, head.by_features[0].error) << "the same draw";
    EXPECT_GT(head.own.error, 0);
    EXPECT_GE(head.own.effective_samples, 1);
  }
}

TEST(AttentionQualityTest, FittedFeaturesAndNearFieldsAreMeasured) {
  auto config = tiny("near");
  config.attention.kernel = "loglinear";
  config.attention.projection = "fitted";
  auto model = make(config);
  for (const auto& head : attention_quality(model, sample_of({16}))) {
    EXPECT_GT(head.own.error, 0);
    EXPECT_LT(head.own.error, 10);
    EXPECT_TRUE(std::isnan(head.own.predicted));
    // Begun as the random features: what fitting would change is not changed yet.
    EXPECT_NEAR(head.own.error, head.by_features[0].error, 1e-4 * head.own.error);
  }
}

TEST(AttentionQualityTest, LayersWithoutQueriesAndOtherMapsHaveNoFeaturesOfTheirOwn) {
  auto mean = make(tiny("mean"));
  EXPECT_TRUE(attention_quality(mean, sample_of()).empty());
  auto config = tiny("favor");
  config.attention.kernel = "relu";
  auto relu = make(config);
  for (const auto& head : attention_quality(relu, sample_of())) {
    EXPECT_TRUE(std::isnan(head.own.error));
    EXPECT_GT(head.by_features[0].error, 0);
  }
}

TEST(TwinTest, TwinsHaveEqualWeightsAndAnotherAttention) {
  auto exact = make(tiny("exact"));
  auto favor = twin_of(exact, favor_recipe(recipe_of(exact->config()), 16));
  EXPECT_EQ(favor->config().attention.kind, "favor");
  auto again = twin_of(favor, exact_recipe(recipe_of(favor->config())));
  const auto row = tokens(2, 20);
  EXPECT_EQ(max_difference(all_logits(exact, row), all_logits(again, row)), 0);
  EXPECT_GT(max_difference(all_logits(exact, row), all_logits(favor, row)), 0);
}

TEST(ErrorGrowthTest, IsTheRelativeErrorAfterEachBlock) {
  auto exact = make(tiny("exact"));
  const auto rows = sample_of().rows;
  for (const double error : error_growth(exact, exact, rows)) EXPECT_EQ(error, 0);
  auto favor = twin_of(exact, favor_recipe(recipe_of(exact->config()), 16));
  const auto found = error_growth(exact, favor, {rows[0]});
  ASSERT_EQ(found.size(), 3U);  // two blocks and the last norm
  const auto a = exact->hidden_after({rows[0].unsqueeze(0), {}}, 1);
  const auto b = favor->hidden_after({rows[0].unsqueeze(0), {}}, 1);
  EXPECT_NEAR(found[0], ((b - a).norm() / a.norm()).item<double>(), 1e-6);
}

TEST(ErrorGrowthTest, MoreFeaturesErrLess) {
  models::Transformer exact(tiny("exact", /*causal=*/false), 7);  // small weights: a fair case
  exact->eval();
  const auto rows = sample_of().rows;
  const auto growth = [&](std::int64_t features) {
    auto twin = twin_of(exact, favor_recipe(recipe_of(exact->config()), features));
    return error_growth(exact, twin, rows).back();
  };
  EXPECT_LT(growth(512), 0.5 * growth(8));
}

}  // namespace
}  // namespace performer::infer
