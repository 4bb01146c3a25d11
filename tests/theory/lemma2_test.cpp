// Lemma 2: the mean squared errors of trigonometric, positive and hyperbolic features.
#include <gtest/gtest.h>

#include <functional>

#include "tests/theory/estimators.h"

namespace performer::theory {
namespace {

using Form = double (*)(const Pair&, double);

struct MapForm {
  FeatureMap map;
  Form mse;
};
constexpr MapForm kForms[] = {{FeatureMap::kTrigonometric, mse_trigonometric},
                              {FeatureMap::kPositive, mse_positive},
                              {FeatureMap::kHyperbolic, mse_hyperbolic}};

TEST(Lemma2, MeanSquaredErrorsOfIndependentFeaturesAreTheClosedForms) {
  constexpr Shape kShape{100'000, 16, 4};
  const Tensor w = draw_many(ProjectionKind::kIid, ProjectionNorm::kChi, kShape);
  // |x + y|^2 = 1, 1, 0.5
  for (const Pair& p : {Pair{0.5, 0.5, 0.0}, Pair{1.0, 1.0, -0.5}, Pair{0.3, 0.1, 0.05}}) {
    const auto [x, y] = make_pair(p, kShape.dim);
    ASSERT_NEAR(pair_of(x, y).sum(), p.sum(), 1e-12);
    for (const auto& [map, mse] : kForms) {
      const Mean mean = mean_of((estimates(w, x, y, map) - softmax_kernel(p)).square());
      const double exact = mse(p, static_cast<double>(kShape.num_features));
      EXPECT_LT(std::abs(mean.value / exact - 1.0), 0.05) << to_string(map) << ", " << p.sum();
      EXPECT_LT(mean.error / exact, 0.0125);  // 5 % are at least 4 standard errors
    }
  }
}

// E[f(g)] for a standard normal g. The trapezoidal rule converges faster than any power here.
double expect_normal(const std::function<double(double)>& f) {
  constexpr double kStep = 1.0 / 64.0, kEnd = 40.0;
  double sum = 0.0;
  for (double g = -kEnd; g <= kEnd; g += kStep) sum += std::exp(-0.5 * g * g) * f(g);
  return sum * kStep / std::sqrt(2.0 * M_PI);
}

TEST(Lemma2, ClosedFormsAreTheSecondMomentsAtAnyNorm) {
  for (const double xx : {0.25, 1.0, 4.0, 9.0}) {
    for (const double yy : {0.5, 4.0, 9.0}) {
      for (const double cosine : {-0.95, -0.5, 0.0, 0.6, 0.95}) {
        const Pair p{xx, yy, cosine * std::sqrt(xx * yy)};
        const double target = softmax_kernel(p), sum = std::sqrt(p.sum());
        const double difference = std::sqrt(p.difference());
        const auto second_moment = [&](const std::function<double(double)>& feature) {
          return expect_normal([&](double g) { return std::pow(feature(g) - target, 2); });
        };
        const double trigonometric =
            second_moment([&](double g) { return std::cos(difference * g) / lambda(p); });
        const double positive =
            second_moment([&](double g) { return std::exp(sum * g) * lambda(p); });
        const double hyperbolic =
            second_moment([&](double g) { return std::cosh(sum * g) * lambda(p); });
        EXPECT_NEAR(trigonometric / mse_trigonometric(p, 1), 1.0, 1e-9) << p.sum();
        EXPECT_NEAR(positive / mse_positive(p, 1), 1.0, 1e-9) << p.sum();
        EXPECT_NEAR(hyperbolic / mse_hyperbolic(p, 1), 1.0, 1e-9) << p.sum();
        EXPECT_LT(mse_hyperbolic(p, 1), mse_positive(p, 2));  // better than twice the features
      }
    }
  }
}

TEST(Lemma2, PositiveFeaturesWinWithoutBoundWhereTheKernelIsSmall) {
  // Figure 2's slice |x| = |y| = l: the ratio of errors grows with the angle past pi/2.
  double before = 0.0;
  for (const double angle : {0.55, 0.65, 0.75, 0.85, 0.95}) {
    const Pair p{1.0, 1.0, std::cos(angle * M_PI)};
    const double ratio = mse_trigonometric(p, 1) / mse_positive(p, 1);
    EXPECT_GT(ratio, before) << angle;
    before = ratio;
  }
  EXPECT_GT(before, 1000.0);
  // As the kernel vanishes, one error vanishes and the other grows.
  EXPECT_LT(mse_positive({9.0, 9.0, -8.9}, 1), 1e-6);
  EXPECT_GT(mse_trigonometric({9.0, 9.0, -8.9}, 1), 1e6);
}

}  // namespace
}  // namespace performer::theory
