#include "performer/ops/analysis/quality.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "performer/ops/exact/attention.h"
#include "tests/support/message_of.h"
#include "tests/support/oracle.h"

namespace performer {
namespace {

using testing::kF64;
using testing::message_of;

constexpr std::int64_t kQualityDim = 8;

struct QualityInputs {
  Tensor q, k, v;
};

QualityInputs make_inputs(std::int64_t length, double deviation) {
  at::manual_seed(14);
  const auto normal = [&](std::int64_t heads) {
    return at::randn({2, heads, length, kQualityDim}, kF64);
  };
  return {normal(2) * deviation, normal(2) * deviation, normal(2)};
}

double of_head(const Tensor& t, std::int64_t head) { return t[head].item<double>(); }

double relative_error(const Tensor& out, const Tensor& exact, std::int64_t head) {
  const Tensor difference = (out - exact).select(1, head);
  return (difference.norm() / exact.select(1, head).norm()).item<double>();
}

QualityOptions every_row(FeatureMap map = FeatureMap::kPositive) {
  QualityOptions options;
  options.favor.feature_map = map;
  options.samples = 1000;
  return options;
}

TEST(Quality, ErrorsAreThoseOfTheOperatorsWhenEveryRowIsSampled) {
  const QualityInputs in = make_inputs(33, 1.2);
  const Tensor W = at::randn({2, 24, kQualityDim}, kF64);
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    QualityOptions options = every_row();
    options.favor.causality = causality;
    options.favor.key_mask = at::ones({2, 33}, at::kBool);
    options.favor.key_mask[1].narrow(0, 0, 9).fill_(false);
    const ApproximationQuality found = approximation_quality(in.q, in.k, in.v, W, options);
    ExactOptions exact_options{causality, {}, options.favor.key_mask, {}};
    const Tensor exact = exact_attention(in.q, in.k, in.v, exact_options);
    const Tensor out = favor_attention(in.q, in.k, in.v, W, options.favor);
    const Tensor average = exact_attention(in.q * 0, in.k, in.v, exact_options);
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_NEAR(of_head(found.error, h), relative_error(out, exact, h), 1e-10);
      EXPECT_NEAR(of_head(found.uniform_error, h), relative_error(average, exact, h), 1e-10);
    }
  }
}

TEST(Quality, SquaredSumAndPredictionAreMeansOverThePairs) {
  const QualityInputs in = make_inputs(20, 0.7);
  const Tensor W = at::randn({50, kQualityDim}, kF64);
  const double root = std::pow(double{kQualityDim}, -0.25);
  const Tensor x = (in.q * root).unsqueeze(3), y = (in.k * root).unsqueeze(2);
  const Tensor sum = (x + y).square().sum(-1), difference = (x - y).square().sum(-1);
  const auto positive = sum.exp() * (1 - (-sum).exp()) / 50;
  const auto trigonometric = difference.exp() * (1 - (-difference).exp()).square() / 100;
  const std::vector<std::pair<FeatureMap, Tensor>> expected = {
      {FeatureMap::kPositive, positive},
      {FeatureMap::kHyperbolic, 0.5 * (1 - (-sum).exp()) * positive},
      {FeatureMap::kTrigonometric, trigonometric}};
  for (const auto& [map, variance] : expected) {
    const auto found = approximation_quality(in.q, in.k, in.v, W, every_row(map));
    EXPECT_TRUE(at::allclose(found.squared_sum, sum.mean({0, 2, 3}), 1e-10));
    EXPECT_TRUE(at::allclose(found.predicted_error, variance.mean({0, 2, 3}), 1e-10));
    EXPECT_TRUE(
        at::allclose(found.suggested_features, (found.predicted_error * 5000).ceil(), 1e-12));
  }
}

TEST(Quality, PredictionIsTheMeasuredVarianceOfTheKernel) {
  at::manual_seed(15);
  const Tensor q = at::randn({1, 1, 1, kQualityDim}, kF64) * 0.15,
               k = at::randn({1, 1, 1, kQualityDim}, kF64) * 0.15;
  const Tensor v = at::ones({1, 1, 1, 1}, kF64), W = at::randn({400'000, kQualityDim}, kF64);
  for (const FeatureMap map :
       {FeatureMap::kPositive, FeatureMap::kHyperbolic, FeatureMap::kTrigonometric}) {
    QualityOptions options = every_row(map);
    options.favor.scale = 1.0;
    const Tensor product = features(q.flatten(), W, map) * features(k.flatten(), W, map);
    const bool two = map != FeatureMap::kPositive;
    const Tensor draws = (two ? product.view({2, -1}).sum(0) : product) * 400'000;
    const Tensor kernel = q.flatten().dot(k.flatten()).exp();
    const double measured = (draws.var() / kernel.square()).item<double>();
    const auto found = approximation_quality(q, k, v, W, options);
    EXPECT_NEAR(of_head(found.predicted_error, 0) * 400'000 / measured, 1, 0.05) << to_string(map);
  }
}

TEST(Quality, EffectiveSamplesAreThoseOfTheDenominatorsShares) {
  const QualityInputs in = make_inputs(20, 1.0);
  const Tensor W = at::randn({2, 16, kQualityDim}, kF64), bias = at::randn({32}, kF64);
  for (const FeatureMap map :
       {FeatureMap::kPositive, FeatureMap::kLoglinear, FeatureMap::kHyperbolic,
        FeatureMap::kTrigonometric, FeatureMap::kRelu, FeatureMap::kTanh}) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      QualityOptions options = every_row(map);
      options.favor.causality = causality;
      options.favor.scale = 0.4;
      Tensor b;
      if (is_exponential_map(map)) b = bias.narrow(0, 0, num_map_features(map, 16));
      options.favor.bias_q = options.favor.bias_k = b;
      const auto found = approximation_quality(in.q, in.k, in.v, W, options);
      for (std::int64_t h = 0; h < 2; ++h) {
        const auto phi = [&](const Tensor& t) {
          return features(t.select(1, h) * std::sqrt(0.4), W[h], map, b);  // [B, L, M']
        };
        const Tensor keys =
            causality == Causality::kCausal ? phi(in.k).cumsum(1) : phi(in.k).sum(1, true);
        const Tensor share = phi(in.q) * keys;
        const Tensor size = share.sum(-1).square() / share.square().sum(-1);
        EXPECT_NEAR(of_head(found.effective_samples, h), size.mean().item<double>(), 1e-8)
            << to_string(map);
      }
    }
  }
}

TEST(Quality, SamplesAreReproducibleAndDependOnTheSeed) {
  const QualityInputs in = make_inputs(100, 1.0);
  const Tensor W = at::randn({16, kQualityDim}, kF64);
  QualityOptions options;
  options.samples = 10;
  const auto error = [&](std::uint64_t seed) {
    options.seed = seed;
    return approximation_quality(in.q, in.k, in.v, W, options).error;
  };
  EXPECT_TRUE(at::equal(error(0), error(0)));
  EXPECT_FALSE(at::equal(error(0), error(1)));
}

TEST(Quality, MaskedKeysAndHugeNormsStayFinite) {
  QualityInputs in = make_inputs(30, 100.0);
  const Tensor W = at::randn({16, kQualityDim});
  in.k.narrow(2, 20, 10).fill_(NAN);
  in.v.narrow(2, 20, 10).fill_(NAN);
  QualityOptions options = every_row();
  options.favor.key_mask = at::ones({2, 30}, at::kBool);
  options.favor.key_mask.narrow(1, 20, 10).fill_(false);
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    options.favor.causality = causality;
    const auto found = approximation_quality(in.q, in.k, in.v, W, options);
    EXPECT_TRUE(found.error.isfinite().all().item<bool>());
    EXPECT_TRUE(found.uniform_error.isfinite().all().item<bool>());
    EXPECT_TRUE(found.effective_samples.isfinite().all().item<bool>());
    EXPECT_TRUE(found.predicted_error.isinf().all().item<bool>());
  }
}

TEST(Quality, KeyBiasIsPartOfTheTargetExceptForFittedMaps) {
  const QualityInputs in = make_inputs(30, 0.5);
  const Tensor W = at::randn({4000, kQualityDim}, kF64);
  const Tensor y = in.k * std::pow(double{kQualityDim}, -0.25);
  QualityOptions options = every_row();
  options.favor.key_bias = at::randn({2, 1, 30}, kF64);
  EXPECT_LT(approximation_quality(in.q, in.k, in.v, W, options).error.max().item<double>(), 0.1);
  options.favor.feature_map = FeatureMap::kLoglinear;  // the same estimate of plain attention
  options.favor.key_bias = -0.5 * y.square().sum(-1);
  const auto found = approximation_quality(in.q, in.k, in.v, W, options);
  EXPECT_LT(found.error.max().item<double>(), 0.1);
  EXPECT_TRUE(found.predicted_error.isnan().all().item<bool>());
}

TEST(Verdict, SaysWhenAHeadIsWorseThanPlainAveraging) {
  QualityInputs in = make_inputs(200, 1.0);
  in.q.select(1, 1).mul_(3);
  in.k.select(1, 1).mul_(3);
  const Tensor W = at::randn({8, kQualityDim}, kF64);
  const auto bad =
      approximation_quality(in.q, in.k, in.v, W, every_row(FeatureMap::kTrigonometric));
  EXPECT_GT(of_head(bad.error, 1), of_head(bad.uniform_error, 1));
  EXPECT_NE(verdict(bad).find("worse than plain averaging"), std::string::npos) << verdict(bad);
}

TEST(Verdict, SaysWhenEveryHeadIsBetter) {
  const QualityInputs in = make_inputs(200, 0.5);
  const Tensor W = at::randn({2000, kQualityDim}, kF64);
  const auto good = approximation_quality(in.q, in.k, in.v, W, every_row());
  EXPECT_LT(good.error.max().item<double>(), 0.5 * good.uniform_error.min().item<double>());
  EXPECT_EQ(verdict(good).rfind("all heads are better than plain averaging", 0), 0)
      << verdict(good);
}

TEST(Verdict, RefusesFieldsThatAreNotOneValueAHead) {
  const Tensor three = at::ones({3}, kF64), one = at::ones({1}, kF64);
  const auto message = [](const Tensor& error, const Tensor& uniform, const Tensor& suggested) {
    ApproximationQuality quality;
    quality.error = error;
    quality.uniform_error = uniform;
    quality.suggested_features = suggested;
    return message_of([&] { (void)verdict(quality); });
  };
  const auto expect = [](const std::string& text, const char* words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  expect(message(three, one, three), "one value for each head, got 3, 1 and 3");
  expect(message(three, three, one), "one value for each head, got 3, 3 and 1");
  expect(message(three, three.view({1, 3}), three), "uniform_error must be a floating point");
  expect(message(three.to(at::kLong), three, three), "error must be a floating point");
  expect(message(three, three, Tensor()), "suggested_features must be a floating point");
  expect(message(three.to(at::kMeta), three, three), "error must hold values");
}

TEST(Verdict, ReadsAsASentence) {
  const std::string other_features =
      " or, for the positive map, optimal ones (performer.fit_oprf and performer.oprf)";
  const auto make = [](std::vector<double> error, std::vector<double> uniform,
                       std::vector<double> suggested) {
    ApproximationQuality quality;
    quality.error = at::tensor(error, kF64);
    quality.uniform_error = at::tensor(uniform, kF64);
    quality.suggested_features = at::tensor(suggested, kF64);
    return verdict(quality);
  };
  EXPECT_EQ(make({0.1, 1.34}, {0.7, 0.61}, {3, 900}),
            "head 1: worse than plain averaging (error 1.34, averaging 0.61): use more features "
            "(about 900)" +
                other_features);
  EXPECT_EQ(make({0.1, 1.34, 0.8}, {0.7, 0.61, 0.7}, {3, INFINITY, 5}),
            "2 of 3 heads: worse than plain averaging (heads 1, 2; worst: head 1, error 1.34, "
            "averaging 0.61): the norms are too large for any practical number of features; pass "
            "a smaller scale, normalise q and k, or use exact attention in these heads");
  EXPECT_EQ(make({0.1}, {0.7}, {3}),
            "head 0 is better than plain averaging (closest: head 0, error 0.1, averaging 0.7)");
  EXPECT_EQ(make({0.1, NAN}, {0.7, 0.7}, {3, NAN}),
            "head 1: worse than plain averaging (error nan, averaging 0.7): use more features" +
                other_features);
}

TEST(Verdict, AdvisesNoFeaturesThatAreThereAlready) {
  const QualityInputs in = make_inputs(200, 0.05);  // attention is all but uniform
  const Tensor W = at::randn({256, kQualityDim}, kF64);
  const auto near = approximation_quality(in.q, in.k, in.v, W, every_row());
  ASSERT_GT(of_head(near.error, 0), of_head(near.uniform_error, 0));
  ASSERT_LT(of_head(near.suggested_features, 0), 256);
  EXPECT_EQ(verdict(near).find("use more features"), std::string::npos) << verdict(near);
  EXPECT_NE(verdict(near).find("within the noise of it"), std::string::npos) << verdict(near);
  ApproximationQuality told;  // by one who knows that they are there
  told.error = near.error;
  told.uniform_error = near.uniform_error;
  told.suggested_features = at::zeros({2}, kF64);
  EXPECT_EQ(verdict(told), verdict(near));
}

TEST(Quality, NamesWhatIsWrong) {
  const QualityInputs in = make_inputs(7, 1.0);
  const Tensor W = at::ones({4, kQualityDim}, kF64);
  const auto expect = [&](const QualityInputs& bad, const QualityOptions& options,
                          const char* text) {
    const std::string message =
        message_of([&] { (void)approximation_quality(bad.q, bad.k, bad.v, W, options); });
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  QualityOptions none, packed, stateful;
  none.samples = 0;
  expect(in, none, "approximation_quality: samples must be positive, got 0");
  packed.favor.cu_seqlens_k = at::tensor({0, 7}, at::kInt);
  expect(in, packed, "packed sequences are not supported");
  stateful.favor.initial_state.kv = at::zeros({1});
  expect(in, stateful, "got an initial_state");
  expect({in.q.narrow(2, 0, 0), in.k, in.v}, {}, "q, k and v must not be empty");
  expect({in.q, in.k, in.v[0]}, {}, "v must be");
  const std::string no_heads = message_of([&] {
    (void)approximation_quality(in.q, in.k, in.v, at::ones({0, 4, kQualityDim}, kF64), {});
  });
  EXPECT_NE(no_heads.find("W must be shared or have"), std::string::npos) << no_heads;
}

}  // namespace
}  // namespace performer
