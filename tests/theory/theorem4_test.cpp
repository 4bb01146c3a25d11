// Theorem 4: with orthogonal trigonometric features in a ball, the number of features that a
// uniform error of the attention matrix needs does not depend on the length.
#include <gtest/gtest.h>

#include "tests/theory/estimators.h"

namespace performer::theory {
namespace {

constexpr std::int64_t kDim = 8, kLongest = 1024;

// Points of norm `radius`, the hardest of the ball: [L, D].
Tensor on_sphere(double radius, std::int64_t seed) {
  ProjectionOptions options;
  options.kind = ProjectionKind::kIid;
  options.norm = ProjectionNorm::kSqrtD;
  options.seed = seed;
  return draw_projection(kLongest, kDim, options).to(at::kDouble) *
         (radius / std::sqrt(static_cast<double>(kDim)));
}

// Largest entry of |A^ - A| over the first `length` queries and keys, mean of 10 draws.
double uniform_error(std::int64_t num_features, std::int64_t length) {
  const Tensor x = on_sphere(1.0, 1).narrow(0, 0, length);
  const Tensor y = on_sphere(1.0, 2).narrow(0, 0, length);
  const Tensor exact = x.matmul(y.t()).exp();
  const Tensor w =
      draw_many(ProjectionKind::kOrthogonal, ProjectionNorm::kChi, {10, num_features, kDim});
  double sum = 0.0;
  for (const Tensor& one : w.unbind()) {
    const Tensor estimate = features(x, one, FeatureMap::kTrigonometric)
                                .matmul(features(y, one, FeatureMap::kTrigonometric).t());
    sum += (estimate - exact).abs().max().item<double>();
  }
  return sum / 10.0;
}

TEST(Theorem4, TheUniformErrorDoesNotGrowWithTheLengthAndFallsWithTheFeatures) {
  const double at_64 = uniform_error(64, 64), at_1024 = uniform_error(64, 1024);
  EXPECT_LT(at_1024, 1.5 * at_64);                     // 256 times as many entries
  EXPECT_LT(uniform_error(512, 1024), at_1024 / 2.0);  // 8 times the features: about 1/2.8
}

}  // namespace
}  // namespace performer::theory
