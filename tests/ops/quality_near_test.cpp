// What the quality meter says of a near field: errors of both fields, predictions for the far one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "performer/ops/analysis/quality.h"
#include "performer/ops/exact/attention.h"
#include "tests/support/oracle.h"

namespace performer {
namespace {

using testing::kF64;

constexpr std::int64_t kNearWidth = 8, kNearLength = 33, kNearBlock = 5, kNearRows = 16;

struct NearInputs {
  Tensor q, k, v, W;
};

NearInputs near_inputs() {
  at::manual_seed(21);
  const auto normal = [&] { return at::randn({2, 2, kNearLength, kNearWidth}, kF64); };
  const Tensor q = normal(), k = normal(), v = normal();
  return {q, k, v, at::randn({2, kNearRows, kNearWidth}, kF64)};
}

// Batch entry 1 begins with nine tokens of padding and has another hole behind them.
QualityOptions near_options(Causality causality, FeatureMap map = FeatureMap::kPositive) {
  QualityOptions options;
  options.samples = 1000;
  options.favor.feature_map = map;
  options.favor.causality = causality;
  options.favor.near = kNearBlock;
  options.favor.key_mask = at::ones({2, kNearLength}, at::kBool);
  options.favor.key_mask[1].narrow(0, 0, 9).fill_(false);
  options.favor.key_mask[1][20] = false;
  return options;
}

constexpr Causality kNearDirections[] = {Causality::kBidirectional, Causality::kCausal};

// bool [2, 1, L, L]: the keys that features stand for; and all that a row may see.
struct NearPairs {
  Tensor far, seen;
};

NearPairs near_pairs(const QualityOptions& options) {
  const Tensor origin = at::tensor({0, 9}, at::kLong).view({2, 1, 1, 1});
  const Tensor place = at::arange(kNearLength, at::kLong);
  const auto block = [&](const Tensor& t) { return (t - origin).floor_divide(kNearBlock); };
  const Tensor distance = block(place.view({1, 1, -1, 1})) - block(place.view({1, 1, 1, -1}));
  Tensor seen = options.favor.key_mask.view({2, 1, 1, kNearLength})
                    .logical_and(place.view({1, 1, -1, 1}).ge(origin));
  if (options.favor.causality == Causality::kCausal) {
    seen = seen.logical_and(place.view({1, -1}).le(place.view({-1, 1})));
  }
  return {distance.abs().gt(1).logical_and(seen), seen};
}

double near_head(const Tensor& t, std::int64_t head) { return t[head].item<double>(); }

TEST(NearQuality, ErrorIsThatOfBothFieldsTogether) {
  const NearInputs in = near_inputs();
  for (const Causality causality : kNearDirections) {
    const QualityOptions options = near_options(causality);
    const auto found = approximation_quality(in.q, in.k, in.v, in.W, options);
    const Tensor out = favor_attention(in.q, in.k, in.v, in.W, options.favor);
    Tensor exact = exact_attention(in.q, in.k, in.v, {causality, {}, options.favor.key_mask, {}});
    exact[1].narrow(1, 0, 9).zero_();  // padding
    const Tensor seen = near_pairs(options).seen.to(at::kDouble);
    const Tensor average = at::matmul(seen, in.v) / seen.sum(-1, true).clamp_min(1);
    for (std::int64_t h = 0; h < 2; ++h) {
      const auto error = [&](const Tensor& t) {
        const Tensor target = exact.select(1, h);
        return ((t.select(1, h) - target).norm() / target.norm()).item<double>();
      };
      EXPECT_NEAR(near_head(found.error, h), error(out), 1e-10);
      EXPECT_NEAR(near_head(found.uniform_error, h), error(average), 1e-10);
    }
  }
}

TEST(NearQuality, PredictionsAreThoseOfTheFarPairs) {
  const NearInputs in = near_inputs();
  const double root = std::pow(kNearWidth, -0.25);
  const Tensor sum =
      ((in.q * root).unsqueeze(3) + (in.k * root).unsqueeze(2)).square().sum(-1);  // [B, H, L, L]
  for (const Causality causality : kNearDirections) {
    const QualityOptions options = near_options(causality);
    const auto found = approximation_quality(in.q, in.k, in.v, in.W, options);
    const Tensor far = near_pairs(options).far.to(at::kDouble).expand_as(sum);
    const auto mean = [&](const Tensor& t) {
      return (t * far).sum({0, 2, 3}) / far.sum({0, 2, 3});
    };
    EXPECT_TRUE(at::allclose(found.squared_sum, mean(sum), 1e-10));
    const Tensor variance = mean(sum.expm1());
    EXPECT_TRUE(at::allclose(found.predicted_error, variance / kNearRows, 1e-10));
    EXPECT_TRUE(at::allclose(found.suggested_features, (variance / 0.01).ceil(), 1e-12));
  }
}

TEST(NearQuality, EffectiveSamplesAreThoseOfTheFarKeys) {
  const NearInputs in = near_inputs();
  for (const FeatureMap map : {FeatureMap::kPositive, FeatureMap::kLoglinear,
                               FeatureMap::kHyperbolic, FeatureMap::kTrigonometric}) {
    for (const Causality causality : kNearDirections) {
      const QualityOptions options = near_options(causality, map);
      const auto found = approximation_quality(in.q, in.k, in.v, in.W, options);
      const Tensor far = near_pairs(options).far.squeeze(1).to(at::kDouble);  // [B, L, L]
      const Tensor has_far = far.sum(-1).gt(0);                               // [B, L]
      for (std::int64_t h = 0; h < 2; ++h) {
        const auto phi = [&](const Tensor& t) {
          return features(t.select(1, h) * std::pow(kNearWidth, -0.25), in.W[h], map);
        };
        const Tensor share = phi(in.q) * at::matmul(far, phi(in.k));  // [B, L, M']
        const Tensor size = share.sum(-1).square() / share.square().sum(-1);
        const double expected = size.masked_select(has_far).mean().item<double>();
        EXPECT_NEAR(near_head(found.effective_samples, h), expected, 1e-7 * expected)
            << to_string(map);
      }
    }
  }
}

TEST(NearQuality, AFieldThatHoldsEveryKeyIsExactAndHasNothingToPredict) {
  const NearInputs in = near_inputs();
  QualityOptions options = near_options(Causality::kCausal);
  options.favor.near = kNearLength;
  const auto found = approximation_quality(in.q, in.k, in.v, in.W, options);
  EXPECT_LT(found.error.max().item<double>(), 1e-12);
  for (const Tensor& t : {found.squared_sum, found.predicted_error, found.effective_samples,
                          found.suggested_features}) {
    EXPECT_TRUE(t.isnan().all().item<bool>());
  }
  EXPECT_EQ(verdict(found).rfind("all heads are better than plain averaging", 0), 0);
}

TEST(NearQuality, WorksWithoutFeaturesAndOnSampledRows) {
  const NearInputs in = near_inputs();
  for (const Causality causality : kNearDirections) {
    QualityOptions options = near_options(causality);
    options.samples = 5;
    const auto some = approximation_quality(in.q, in.k, in.v, in.W, options);
    EXPECT_TRUE(some.effective_samples.gt(1).all().item<bool>());
    const Tensor none = at::zeros({0, kNearWidth}, kF64);
    const auto alone = approximation_quality(in.q, in.k, in.v, none, options);
    EXPECT_TRUE(alone.error.gt(some.error * 0).all().item<bool>());
    EXPECT_TRUE(alone.predicted_error.isnan().all().item<bool>());
    EXPECT_TRUE(alone.effective_samples.isnan().all().item<bool>());
    EXPECT_TRUE(at::equal(alone.squared_sum, some.squared_sum));
    EXPECT_TRUE(at::equal(alone.suggested_features, some.suggested_features));
  }
}

}  // namespace
}  // namespace performer
