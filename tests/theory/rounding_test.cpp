// What the 16-bit grid of W changes in the estimates of the lemmas: next to nothing.
#include <gtest/gtest.h>

#include <string>

#include "performer/ops/projection/grid.h"
#include "tests/theory/estimators.h"

namespace performer::theory {
namespace {

// P(low < g < high) for a standard normal g and low >= 0.
double normal_mass(double low, double high) {
  return 0.5 * (std::erfc(low / std::sqrt(2.0)) - std::erfc(high / std::sqrt(2.0)));
}

// E[exp(t r)] exp(-t^2/2) - 1 for r, a standard normal rounded to the grid: a sum over the numbers
// of the grid, each with the mass of the interval that is rounded to it. For iid rows the factor
// between the mean estimate and exp(x.y) is the product of 1 + this over the coordinates of x + y.
double moment_excess(double t) {
  constexpr double kEnd = 16.0;
  const double scale = std::exp(-t * t / 2);
  double sum = 0.0, mass = 0.0;
  double number = 0.0, low = 0.0;
  while (number < kEnd) {
    const double step = std::ldexp(1.0, std::max(std::ilogb(std::max(number, 1e-30)) - 7, -24));
    const double next = number + step, middle = number + step / 2;
    EXPECT_EQ(round_to_grid(std::nextafter(middle, 0.0)), number);
    EXPECT_EQ(round_to_grid(std::nextafter(middle, kEnd)), next);
    const double part = normal_mass(low, middle);
    // cosh(t r) - 1 at +-r, in a form that keeps the digits of a small excess.
    sum += part * 4 * std::pow(std::sinh(t * number / 2), 2);
    mass += 2 * part;
    number = next, low = middle;
  }
  EXPECT_NEAR(mass, 1.0, 1e-14);
  return scale * sum + std::expm1(-t * t / 2);
}

TEST(Rounding, ChangesTheMeanOfAnEstimateByLessThanAThousandthOfItsNoise) {
  constexpr double kMostFeatures = 65536, kDim = 64;
  for (const double squared_sum : {0.01, 0.1, 1.0, 4.0, 16.0}) {
    const double each = moment_excess(std::sqrt(squared_sum / kDim));
    const double bias = std::expm1(kDim * std::log1p(each));
    const double noise = std::sqrt(std::expm1(squared_sum) / kMostFeatures);  // Lemma 2, relative
    RecordProperty("bias at " + std::to_string(squared_sum), std::to_string(bias * 1e6) + "e-6");
    EXPECT_LT(bias, -1e-6 * squared_sum) << "a power of two takes in more from above";
    EXPECT_GT(bias, -1.5e-6 * squared_sum);
    EXPECT_LT(std::abs(bias), 1e-3 * noise) << squared_sum;
  }
}

class RoundedDraws : public testing::TestWithParam<ProjectionNorm> {};

// The same draws with and without the grid: what they differ by is due to rounding alone.
TEST_P(RoundedDraws, GiveTheEstimatesOfUnroundedOnesToAHundredthOfTheirNoise) {
  constexpr Shape kShape{20'000, 16, 16};
  for (const auto kind : {ProjectionKind::kIid, ProjectionKind::kOrthogonal}) {
    const Tensor rounded = draw_many(kind, GetParam(), kShape);
    const Tensor exact = draw_many(kind, GetParam(), kShape, ProjectionRounding::kNone);
    for (const Pair& p : {Pair{0.5, 0.5, 0.0}, Pair{1.0, 1.0, 1.0}}) {  // |x + y|^2 = 1, 4
      const auto [x, y] = make_pair(p, kShape.dim);
      const Tensor estimate = estimates(exact, x, y, FeatureMap::kPositive);
      const Tensor moved = estimates(rounded, x, y, FeatureMap::kPositive) - estimate;
      const Mean mean = mean_of(moved), noise = mean_of(estimate);
      const auto name = std::string(to_string(kind)) + ", " + std::to_string(p.sum());
      RecordProperty("share of the noise, " + name, std::to_string(mean.error / noise.error));
      EXPECT_LT(std::abs(mean.deviations(-1.4e-6 * p.sum() * noise.value)), 4.0) << name;
      EXPECT_LT(mean.error, 0.01 * noise.error) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Norms, RoundedDraws,
                         testing::Values(ProjectionNorm::kChi, ProjectionNorm::kSqrtD),
                         [](const auto& info) {
                           return info.param == ProjectionNorm::kChi ? "chi" : "sqrt_d";
                         });

}  // namespace
}  // namespace performer::theory
