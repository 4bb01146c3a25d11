// Lemma 1: positive, hyperbolic and trigonometric features estimate exp(x.y) without bias, with
// independent and with orthogonal directions; with norms sqrt(d), the first two estimate SMREG.
#include <gtest/gtest.h>

#include "performer/ops/projection/projection.h"
#include "tests/theory/estimators.h"

namespace performer::theory {
namespace {

constexpr Shape kShape{100'000, 8, 8};

struct Inputs {
  const char* name;
  Tensor x, y;  // |x + y|^2 = 2
};

Inputs along_ones(const char* name, double sign) {
  const Tensor z = at::full({kShape.dim}, sign * std::sqrt(2.0 / kShape.dim), at::kDouble);
  return {name, 0.8 * z, 0.2 * z};
}

std::vector<Inputs> all_inputs() {
  const auto [x, y] = make_pair({1.2, 0.5, 0.15}, kShape.dim);
  return {{"general position", x, y}, along_ones("+ones", 1.0), along_ones("-ones", -1.0)};
}

// The mean of unbiased estimates passes 4 standard errors once in 16,000 runs.
constexpr double kBound = 4.0;

class Lemma1 : public testing::TestWithParam<ProjectionKind> {};

TEST_P(Lemma1, FeaturesEstimateTheSoftmaxKernelWithoutBias) {
  const Tensor w = draw_many(GetParam(), ProjectionNorm::kChi, kShape);
  for (const auto& in : all_inputs()) {
    for (const auto map :
         {FeatureMap::kPositive, FeatureMap::kHyperbolic, FeatureMap::kTrigonometric}) {
      const double target = softmax_kernel(pair_of(in.x, in.y));
      const Mean mean = mean_of(estimates(w, in.x, in.y, map));
      EXPECT_LT(std::abs(mean.deviations(target)), kBound) << in.name << ", " << to_string(map);
      EXPECT_LT(mean.error, 0.005 * target);  // the test can see a bias of 2 %
    }
  }
}

TEST_P(Lemma1, FeaturesOfNormSqrtDEstimateTheRegularizedKernelWithoutBias) {
  const Tensor w = draw_many(GetParam(), ProjectionNorm::kSqrtD, kShape);
  for (const auto& in : all_inputs()) {
    for (const auto map : {FeatureMap::kPositive, FeatureMap::kHyperbolic}) {
      const double target = regularized_kernel(kShape.dim, pair_of(in.x, in.y));
      const Mean mean = mean_of(estimates(w, in.x, in.y, map));
      EXPECT_LT(std::abs(mean.deviations(target)), kBound) << in.name << ", " << to_string(map);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Lemma1,
                         testing::Values(ProjectionKind::kIid, ProjectionKind::kOrthogonal),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Lemma1, FailsAlongOnesForAQrWithoutTheSigns) {
  const Shape shape{20'000, 8, 8};
  const Tensor gaussian = draw_many(ProjectionKind::kIid, ProjectionNorm::kChi, shape);
  const Tensor norms =
      draw_many(ProjectionKind::kOrthogonal, ProjectionNorm::kChi, shape).norm(2, -1, true);
  const Tensor unfixed = std::get<0>(at::linalg_qr(gaussian)).transpose(-1, -2) * norms;
  for (const auto& in : {along_ones("+ones", 1.0), along_ones("-ones", -1.0)}) {
    const double target = softmax_kernel(pair_of(in.x, in.y));
    const Mean mean = mean_of(estimates(unfixed, in.x, in.y, FeatureMap::kPositive));
    EXPECT_GT(std::abs(mean.deviations(target)), 20.0) << in.name;
    EXPECT_GT(std::abs(mean.value / target - 1.0), 0.05) << in.name;
  }
}

}  // namespace
}  // namespace performer::theory
