#include "performer/models/fitted_features.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "performer/fit/attention_divergence.h"
#include "performer/fit/calibrate.h"
#include "performer/models/favor_core.h"
#include "tests/models/tiny_model.h"

namespace performer::fit {
namespace {

using models::FittedFeatures;
using models::Heads;
using models::ModelConfig;

struct Shape {
  std::int64_t features = 16, near = 0, key_heads = 4;
  bool causal = false;
};

ModelConfig config_of(const Shape& shape) {
  ModelConfig config = models::testing::tiny("favor");
  config.dim = 32, config.heads = 4, config.kv_heads = shape.key_heads;
  config.causal = shape.causal;
  config.attention.kind = "favor";
  config.attention.kernel = "loglinear";
  config.attention.projection = "fitted";
  config.attention.features = shape.features;
  config.attention.near = shape.near;
  check(config);
  return config;
}

Heads random_heads(std::int64_t key_heads, double size = 1) {
  at::manual_seed(3);
  return {size * at::randn({2, 4, 24, 8}), size * at::randn({2, key_heads, 24, 8}),
          at::randn({2, key_heads, 24, 8})};
}

// Off the places where features begin.
void disturb(FittedFeatures& features) {
  at::manual_seed(4);
  for (auto& buffer : features->buffers()) buffer.add_(0.1 * at::randn_like(buffer));
}

class FittedFeaturesAs : public ::testing::TestWithParam<Shape> {};

TEST_P(FittedFeaturesAs, TheOperatorWeighsAsTheDenseFormulaSays) {
  const Shape shape = GetParam();
  models::FavorCore core(config_of(shape), 0);
  FittedFeatures features = core.fitted();
  disturb(features);
  const Heads heads = random_heads(shape.key_heads);
  const Sight sight({}, {2, 24}, shape.causal, shape.near);
  const at::Tensor weights = feature_log_weights(*features, heads, sight).softmax(-1);
  const at::Tensor v = heads.v.repeat_interleave(4 / shape.key_heads, 1);
  const at::Tensor expected = at::matmul(weights, v);
  EXPECT_LT((core.forward(heads, {}) - expected).abs().max().item<double>(), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FittedFeaturesAs,
                         ::testing::Values(Shape{}, Shape{16, 0, 4, true}, Shape{16, 0, 2, false},
                                           Shape{16, 8, 4, true}, Shape{16, 8, 2, true},
                                           Shape{16, 8, 4, false}));

TEST(FittedFeaturesTest, BeginAsPositiveFeatures) {
  auto config = config_of({.near = 8, .causal = true});
  models::FavorCore fitted(config, 1);
  config.attention.kernel = "positive", config.attention.projection = "orthogonal";
  models::FavorCore random(config, 1);
  const Heads heads = random_heads(4);
  EXPECT_TRUE(at::allclose(fitted.forward(heads, {}), random.forward(heads, {}), 1e-4, 1e-5));
}

TEST(FittedFeaturesTest, AStreamIsTheBatch) {
  const auto config = config_of({.near = 8, .key_heads = 2, .causal = true});
  models::FavorCore core(config, 0);
  FittedFeatures features = core.fitted();
  disturb(features);
  const Heads heads = random_heads(2);
  const at::NoGradGuard no_grad;
  const at::Tensor all = core.forward(heads, {});
  models::LayerState state;
  for (std::int64_t t = 0; t < 24; ++t) {
    const auto token = [&](const at::Tensor& h) { return h.narrow(2, t, 1); };
    const at::Tensor out = core.decode({token(heads.q), token(heads.k), token(heads.v)}, state, t);
    EXPECT_TRUE(at::allclose(out, token(all), 1e-4, 1e-5)) << t;
  }
}

// The mean over very many features is exp(x.y), times a factor of the row alone.
TEST(CalibrateTest, KeepsTheKernelThatIsEstimated) {
  Shape shape;
  shape.features = 40000, shape.near = 8;
  models::FavorCore core(config_of(shape), 0);
  at::manual_seed(5);
  const at::Tensor stretch = at::linspace(0.3, 1.2, 8);
  const Heads heads = {0.7 * at::randn({2, 4, 24, 8}) * stretch + 0.4,
                       0.7 * at::randn({2, 4, 24, 8}) / stretch - 0.3,
                       {}};
  Moments moments;
  FittedFeatures features = core.fitted();
  moments.add(heads, at::ones({2, 24}, at::kBool), features->scale());
  const Sight sight({}, {2, 24}, false, 0);
  const auto error = [&] {
    const at::Tensor exact = exact_log_weights(heads, features->scale(), sight);
    return (feature_log_weights(*features, heads, sight) - exact)
        .square()
        .mean()
        .sqrt()
        .item<double>();
  };
  const double random = error();
  calibrate(*features, moments);
  const double calibrated = error();
  EXPECT_LT(calibrated, 0.1);
  EXPECT_LT(calibrated, random);
}

TEST(AttentionDivergenceTest, IsTheDefinition) {
  models::FavorCore core(config_of({.near = 8, .causal = true}), 0);
  FittedFeatures features = core.fitted();
  disturb(features);
  const Heads heads = random_heads(4, 0.5);
  at::Tensor mask = at::ones({2, 24}, at::kBool);
  mask.select(0, 1).narrow(0, 20, 4).fill_(false);
  const Sight sight(mask, {2, 24}, true, 8);
  const at::Tensor p = exact_log_weights(heads, features->scale(), sight).softmax(-1);
  const at::Tensor a = feature_log_weights(*features, heads, sight).softmax(-1);
  double sum = 0;
  std::int64_t rows = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < (b == 0 ? 24 : 20); ++i, ++rows) {
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto exact = p[b][h][i][j].item<double>();
          sum += exact * std::log(exact / a[b][h][i][j].item<double>());
        }
      }
    }
  }
  const double found = attention_divergence(*features, heads, sight).item<double>();
  EXPECT_NEAR(found, sum / static_cast<double>(rows), 1e-5);
  EXPECT_GT(found, 1e-3);
}

}  // namespace
}  // namespace performer::fit
