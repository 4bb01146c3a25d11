// Theorem 2: orthogonal directions lower the error of positive features in every dimension, by at
// least 2 (m-1) / (m (d+2)) (K - lambda)^2, for the softmax kernel and for SMREG.
#include <gtest/gtest.h>

#include "tests/theory/estimators.h"

namespace performer::theory {
namespace {

TEST(Theorem2, TheExactGapIsAtLeastTheOneStated) {
  for (const double d : {2.0, 3.0, 8.0, 16.0, 64.0}) {
    for (const double s : {0.01, 0.1, 1.0, 4.0, 9.0}) {
      for (const auto norms : {Norms::kChi, Norms::kSqrtD}) {
        // Both sides over lambda^2 (1 - 1/m).
        const double gap = -orthogonal_covariance(d, s, norms);
        const double kernel = norms == Norms::kChi ? std::exp(s / 2.0) : sphere_moment(d, s);
        const double stated = 2.0 / (d + 2.0) * (kernel - 1.0) * (kernel - 1.0);
        EXPECT_GE(gap, stated * (1.0 - 1e-10)) << d << ", " << s;
        // The factor cannot be improved: it is the leading term.
        if (s == 0.01) {
          EXPECT_LT(gap, stated * 1.02) << d;
        }
      }
    }
  }
}

struct Case {
  ProjectionNorm norm;
  Norms norms;
  const char* name;
};

class Theorem2 : public testing::TestWithParam<Case> {};

TEST_P(Theorem2, TheDrawnProjectionsHaveTheExactErrors) {
  constexpr Shape kShape{100'000, 8, 8};
  constexpr double kM = kShape.num_features, kD = kShape.dim;
  const auto& [norm, norms, name] = GetParam();
  const bool chi = norms == Norms::kChi;
  const Tensor iid = draw_many(ProjectionKind::kIid, norm, kShape);
  const Tensor orthogonal = draw_many(ProjectionKind::kOrthogonal, norm, kShape);
  for (const Pair& p : {Pair{0.4, 0.4, 0.1}, Pair{0.3, 0.3, -0.05}}) {  // |x + y|^2 = 1, 0.5
    const auto [x, y] = make_pair(p, kShape.dim);
    const double kernel = chi ? softmax_kernel(p) : regularized_kernel(kD, p);
    const auto error = [&, x = x, y = y](const Tensor& w) {
      return mean_of((estimates(w, x, y, FeatureMap::kPositive) - kernel).square());
    };
    const double exact_iid = chi ? mse_positive(p, kM) : mse_regularized(kD, p, kM);
    const double covariance = lambda(p) * lambda(p) * orthogonal_covariance(kD, p.sum(), norms);
    const double exact_orthogonal = exact_iid + (1.0 - 1.0 / kM) * covariance;
    const double stated = 2.0 * (kM - 1.0) / (kM * (kD + 2.0)) * std::pow(kernel - lambda(p), 2);
    const Mean mse_iid = error(iid), mse_orthogonal = error(orthogonal);
    EXPECT_LT(std::abs(mse_iid.deviations(exact_iid)), 4.0) << name << ", " << p.sum();
    EXPECT_LT(std::abs(mse_orthogonal.deviations(exact_orthogonal)), 4.0) << name;
    EXPECT_LE(exact_orthogonal, exact_iid - stated);
    EXPECT_GT(stated, 4.0 * mse_orthogonal.error) << "too few draws to see the gap";
    EXPECT_LT(mse_orthogonal.value, exact_iid - stated + 4.0 * mse_orthogonal.error);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Theorem2,
                         testing::Values(Case{ProjectionNorm::kChi, Norms::kChi, "softmax"},
                                         Case{ProjectionNorm::kSqrtD, Norms::kSqrtD,
                                              "regularized"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace performer::theory
