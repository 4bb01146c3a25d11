// Figure 4: error of the attention output at L = 4096, d = 16, 15 seeds, in float32. All 4096 keys
// are there; the error is taken over 256 queries, a sample of independent rows.
#include <gtest/gtest.h>

#include <cmath>

#include "performer/ops/feature_map.h"
#include "performer/ops/projection/projection.h"

namespace performer {
namespace {

constexpr std::int64_t kLength = 4096, kQueries = 256, kDim = 16, kSeeds = 15;

ProjectionOptions make(ProjectionKind kind, std::int64_t heads, std::int64_t seed) {
  ProjectionOptions options;
  options.kind = kind;
  options.heads = heads;
  options.seed = seed;
  return options;
}

struct Experiment {
  Tensor x, y, v, exact;  // [256, 16], [4096, 16], [4096, 16 + a column of ones], [256, 16]

  // Standard normals times `deviation`, scaled by d^(-1/4).
  Experiment(double deviation, std::int64_t seed) {
    const auto data = make(ProjectionKind::kIid, 3, 1000 + seed);
    const auto [q, k, values] = [&] {
      const auto heads = draw_projection(kLength, kDim, data).unbind();
      return std::tuple{heads[0], heads[1], heads[2]};
    }();
    const double factor = deviation / std::sqrt(std::sqrt(static_cast<double>(kDim)));
    x = factor * q.narrow(0, 0, kQueries);
    y = factor * k;
    v = at::cat({values, at::ones({kLength, 1})}, -1);
    exact = x.matmul(y.t()).softmax(-1).matmul(values);
  }

  // Mean squared error of the output, mean over the draws w [draws, M, D].
  double error(const Tensor& w, FeatureMap map) const {
    const std::int64_t draws = w.size(0), m = w.size(1);
    const Tensor all = w.flatten(0, 1);                        // rows of all draws as one
    const Tensor kv = features(y, all, map).t().matmul(v);     // [l draws M, 17]
    const Tensor by_draw = kv.view({-1, draws, m, kDim + 1});  // [l, draws, M, 17]
    const Tensor phi = features(x, all, map).view({kQueries, -1, draws, m});
    const Tensor sums = phi.permute({1, 2, 0, 3}).matmul(by_draw).sum(0);  // [draws, 256, 17]
    const Tensor out = sums.narrow(-1, 0, kDim) / sums.narrow(-1, kDim, 1);
    return (out - exact).square().mean().item<double>();
  }
};

TEST(Figure4, PositiveFeaturesBeatTrigonometricOnesAtEveryNumberOfFeatures) {
  constexpr std::int64_t kDraws = 3;
  for (std::int64_t seed = 0; seed < kSeeds; ++seed) {
    const Experiment experiment(1.0, seed);
    for (const std::int64_t m : {16, 32, 64, 128, 256}) {
      const auto options = make(ProjectionKind::kOrthogonal, kDraws, seed);
      const Tensor w = draw_projection(m, kDim, options);
      const double positive = experiment.error(w, FeatureMap::kPositive);
      // 2 m features of the same m directions
      const double trigonometric = experiment.error(w, FeatureMap::kTrigonometric);
      EXPECT_LT(positive, trigonometric) << "seed " << seed << ", m " << m;
    }
  }
}

TEST(Figure4, OrthogonalFeaturesBeatIndependentOnes) {
  constexpr std::int64_t kDraws = 50;
  for (std::int64_t seed = 0; seed < kSeeds; ++seed) {
    const Experiment experiment(0.5, seed);
    for (const std::int64_t m : {16, 64}) {
      const auto error = [&](ProjectionKind kind) {
        return experiment.error(draw_projection(m, kDim, make(kind, kDraws, seed)),
                                FeatureMap::kPositive);
      };
      const double ratio = error(ProjectionKind::kOrthogonal) / error(ProjectionKind::kIid);
      EXPECT_LT(ratio, 1.0) << "seed " << seed << ", m " << m;
    }
  }
}

}  // namespace
}  // namespace performer
