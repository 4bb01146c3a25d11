#include "performer/ops/projection/structured.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

namespace performer {
namespace {

struct Case {
  ProjectionKind kind;
  ProjectionNorm norm;
  std::int64_t num_features, dim;
  std::optional<std::int64_t> heads;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto kind : {ProjectionKind::kHadamard, ProjectionKind::kGivens}) {
    for (const auto norm : {ProjectionNorm::kChi, ProjectionNorm::kSqrtD}) {
      for (const auto& [m, d] : {std::pair<int, int>{1, 1}, {3, 2}, {5, 7}, {70, 31}, {64, 64}}) {
        cases.push_back({kind, norm, m, d, {}});
        cases.push_back({kind, norm, m, d, 3});
      }
    }
  }
  return cases;
}

ProjectionOptions options_of(const Case& c) {
  ProjectionOptions options;
  options.kind = c.kind;
  options.norm = c.norm;
  options.heads = c.heads;
  options.seed = 11;
  return options;
}

class Structured : public ::testing::TestWithParam<Case> {
 protected:
  StructuredProjection projection_ =
      draw_structured(GetParam().num_features, GetParam().dim, options_of(GetParam()));
  // [B, H, L, D], the D axis not contiguous
  Tensor x_ = at::arange(2 * 3 * 4 * GetParam().dim, at::kDouble)
                  .sin()
                  .view({2, 3, GetParam().dim, 4})
                  .transpose(-1, -2);
};

TEST_P(Structured, DenseIsBitEqualToDrawProjectionWithoutRounding) {
  auto options = options_of(GetParam());
  options.rounding = ProjectionRounding::kNone;
  const Tensor w = draw_projection(GetParam().num_features, GetParam().dim, options);
  EXPECT_TRUE(at::equal(projection_.dense(), w));
  EXPECT_TRUE(
      at::equal(projection_.row_scale,
                draw_structured(GetParam().num_features, GetParam().dim, options).row_scale));
}

TEST_P(Structured, ApplyIsTheDenseProduct) {
  const Tensor exact = x_.matmul(projection_.dense(at::kDouble).transpose(-1, -2));
  const Tensor applied = projection_.apply(x_);
  ASSERT_EQ(applied.sizes(), exact.sizes());
  EXPECT_LT((applied - exact).abs().max().item<double>(), 1e-12);
  const Tensor narrow = projection_.apply(x_.to(at::kFloat));
  EXPECT_EQ(narrow.scalar_type(), at::kFloat);
  EXPECT_LT((narrow - exact).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(projection_.apply(x_.to(at::kBFloat16)).scalar_type(), at::kBFloat16);
}

TEST_P(Structured, GradientIsTheTransposedProduct) {
  const Tensor x = x_.clone().requires_grad_();
  const Tensor y = projection_.apply(x);
  const Tensor weight = at::arange(y.numel(), at::kDouble).cos().view(y.sizes());
  const Tensor gradient = torch::autograd::grad({(y * weight).sum()}, {x})[0];
  EXPECT_LT((gradient - weight.matmul(projection_.dense(at::kDouble))).abs().max().item<double>(),
            1e-12);
}

INSTANTIATE_TEST_SUITE_P(AllCases, Structured, ::testing::ValuesIn(all_cases()));

TEST(StructuredStorage, HadamardKeepsFourNumbersARowAndGivensAboutFourLog2D) {
  ProjectionOptions options;
  options.heads = 8;
  options.kind = ProjectionKind::kHadamard;
  EXPECT_EQ(draw_structured(256, 64, options).numel(), 8 * 4 * 256);
  options.kind = ProjectionKind::kGivens;
  // A row norm, a sign, and in each of 12 layers an index, half a cosine and half a sine.
  EXPECT_EQ(draw_structured(256, 64, options).numel(), 8 * 256 * (2 + 12 * 2));
}

TEST(StructuredErrors, NameTheArgumentAndTheValue) {
  ProjectionOptions options;
  EXPECT_THROW(draw_structured(4, 4, options), c10::Error);  // orthogonal has no structured form
  options.kind = ProjectionKind::kGivens;
  options.heads = 2;
  const auto p = draw_structured(4, 4, options);
  EXPECT_THROW(p.apply(at::ones({2, 3, 5})), c10::Error);
  EXPECT_THROW(p.apply(at::ones({3, 4})), c10::Error);
  EXPECT_THROW(p.apply(at::ones({3, 3, 4})), c10::Error);
  EXPECT_THROW(p.apply(at::ones({2, 3, 4}, at::kLong)), c10::Error);
}

TEST(Hadamard, RowsHaveUnitCovarianceAfterTheCut) {
  // E[w w^T] = I exactly when the norm before the cut is chi_dp: 31 of 32 columns kept.
  ProjectionOptions options;
  options.kind = ProjectionKind::kHadamard;
  options.heads = 1000;
  const Tensor w = draw_projection(32, 31, options).to(at::kDouble).flatten(0, 1);  // [N, D]
  const double n = static_cast<double>(w.size(0));
  const Tensor covariance = w.t().matmul(w) / n;
  const Tensor excess = covariance - at::eye(31, at::kDouble);
  EXPECT_LT(excess.abs().max().item<double>() * std::sqrt(n), 6.0);  // largest of 496 entries
  EXPECT_LT(std::abs(excess.diagonal().mean().item<double>()) * std::sqrt(n * 31 / 2), 4.0);
}

}  // namespace
}  // namespace performer
