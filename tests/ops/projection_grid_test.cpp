#include "performer/ops/projection/grid.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "performer/ops/projection/oprf.h"
#include "performer/ops/projection/projection.h"
#include "performer/ops/projection/structured.h"

namespace performer {
namespace {

// Numbers of the grid by its definition: k 2^-24 with k < 256, then 128 for each power of two.
std::vector<double> grid_up_to(double end) {
  std::vector<double> grid;
  for (int k = 0; k < 256; ++k) grid.push_back(std::ldexp(k, -24));
  for (int unit = -23; grid.back() < end; ++unit) {
    for (int k = 128; k < 256; ++k) grid.push_back(std::ldexp(k, unit));
  }
  return grid;
}

// Where rounding is hard: each number of the grid, each middle between two, and what lies beside.
std::vector<double> hard_numbers() {
  const auto grid = grid_up_to(200.0);
  std::vector<double> hard;
  for (std::size_t i = 0; i + 1 < grid.size(); ++i) {
    const double middle = (grid[i] + grid[i + 1]) / 2;
    for (const double value : {grid[i], middle}) {
      hard.push_back(value);
      hard.push_back(std::nextafter(value, 1e3));
      hard.push_back(std::nextafter(value, -1e3));
    }
  }
  for (std::size_t i = 0, n = hard.size(); i < n; ++i) hard.push_back(-hard[i]);
  return hard;
}

TEST(RoundToGrid, TakesTheNearestNumberAndTheEvenOneOfATie) {
  const auto grid = grid_up_to(200.0);
  for (std::size_t i = 0; i + 1 < grid.size(); ++i) {
    const double low = grid[i], high = grid[i + 1], middle = (low + high) / 2;
    EXPECT_EQ(round_to_grid(low), low);
    EXPECT_EQ(round_to_grid(std::nextafter(middle, low)), low);
    EXPECT_EQ(round_to_grid(std::nextafter(middle, high)), high);
    EXPECT_EQ(round_to_grid(middle), i % 2 == 0 ? low : high) << low;  // the grid counts from 0
    EXPECT_EQ(round_to_grid(-std::nextafter(middle, high)), -high);
  }
}

TEST(RoundToGrid, KeepsWhatIsNotFiniteAndTheSignOfZero) {
  EXPECT_EQ(round_to_grid(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(round_to_grid(NAN)));
  EXPECT_TRUE(std::signbit(round_to_grid(-1e-300)));
  EXPECT_EQ(round_to_grid(5e-324), 0.0);
}

TEST(RoundToGrid, DoesNotDependOnTheRoundingMode) {
  const auto hard = hard_numbers();
  const auto all = [&] {
    std::vector<double> rounded;
    for (const double value : hard) rounded.push_back(round_to_grid(value));
    return rounded;
  };
  const auto nearest = all();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ASSERT_EQ(std::fesetround(mode), 0);
    const auto other = all();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(other, nearest) << mode;
  }
}

TEST(RoundToGrid, OfTensorsHasTheSameBits) {
  auto values = hard_numbers();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {-0.0, 5e-324, 1e-30, 7e4, -1e38, 1e300, kInfinity, -kInfinity}) {
    values.push_back(value);
  }
  const Tensor rounded = round_to_grid(at::tensor(values, at::kDouble));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto got = rounded[static_cast<std::int64_t>(i)].item<double>();
    EXPECT_EQ(got, round_to_grid(values[i])) << values[i];
  }
  EXPECT_TRUE(round_to_grid(at::full({1}, NAN, at::kDouble)).isnan().item<bool>());
}

TEST(RoundToGrid, OfTensorsHasTheGradientOfTheIdentity) {
  const Tensor values = at::tensor({0.3, -1e-9, 1.0, 5.7}, at::kDouble).requires_grad_();
  round_to_grid(values).sum().backward();
  EXPECT_TRUE(at::equal(values.grad(), at::ones({4}, at::kDouble)));
}

bool is_on_grid(const Tensor& w) {
  const Tensor steps = w.to(at::kDouble) * std::ldexp(1.0, 24);
  return at::equal(w.to(at::kBFloat16).to(w.scalar_type()), w) &&
         at::equal(w.to(at::kHalf).to(w.scalar_type()), w) && at::equal(steps, steps.round());
}

ProjectionOptions rounded_draw(ProjectionKind kind, ProjectionNorm norm,
                               ProjectionRounding rounding) {
  ProjectionOptions options;
  options.kind = kind;
  options.norm = norm;
  options.heads = 3;
  options.rounding = rounding;
  return options;
}

constexpr ProjectionKind kRoundedKinds[] = {ProjectionKind::kIid, ProjectionKind::kOrthogonal,
                                            ProjectionKind::kSimplex, ProjectionKind::kHadamard,
                                            ProjectionKind::kGivens};

TEST(DrawProjectionOnTheGrid, RoundsEveryEntryOnceFromFloat64) {
  for (const auto kind : kRoundedKinds) {
    for (const auto norm : {ProjectionNorm::kChi, ProjectionNorm::kSqrtD}) {
      for (const std::int64_t d : {1, 2, 3, 7, 16, 31, 64, 128}) {
        const Tensor w =
            draw_projection(40, d, rounded_draw(kind, norm, ProjectionRounding::kBf16));
        const Tensor free =
            draw_projection(40, d, rounded_draw(kind, norm, ProjectionRounding::kNone));
        EXPECT_TRUE(is_on_grid(w)) << to_string(kind) << ", d " << d;
        const Tensor off = (w.to(at::kDouble) - free.to(at::kDouble)).abs();
        // Half a step, which is 2^-8 of itself at most, and the rounding of `free` to float32.
        const Tensor most = at::clamp_min(free.abs() / 128, std::ldexp(1.0, -24)) * 0.5001;
        EXPECT_TRUE((off <= most).all().item<bool>()) << to_string(kind) << ", d " << d;
      }
    }
  }
}

// A kind in its structured form has all of its float64 digits to compare with.
TEST(DrawProjectionOnTheGrid, IsTheRoundedDenseFormOfAStructuredDraw) {
  for (const auto kind : {ProjectionKind::kHadamard, ProjectionKind::kGivens}) {
    const auto options = rounded_draw(kind, ProjectionNorm::kChi, ProjectionRounding::kBf16);
    const Tensor exact = draw_structured(100, 31, options).dense(at::kDouble);
    EXPECT_FALSE(is_on_grid(exact));
    EXPECT_TRUE(at::equal(draw_projection(100, 31, options).to(at::kDouble), round_to_grid(exact)));
  }
}

TEST(OprfOnTheGrid, RoundsTheScaledProjectionOfAnyFloatingType) {
  const Tensor W = draw_projection(64, 16);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const double a : {-2.0, -0.1, 0.0, 0.1}) {
      const auto [scaled, bias] = oprf(W.to(dtype), a);
      EXPECT_EQ(scaled.scalar_type(), dtype);
      EXPECT_TRUE(is_on_grid(scaled)) << dtype << ", a = " << a;
      const auto [free, other] = oprf(W.to(dtype), a, ProjectionRounding::kNone);
      const Tensor off = (scaled - free).to(at::kDouble).norm();
      EXPECT_LT(off.item<double>(), free.to(at::kDouble).norm().item<double>() / 256);
      if (a == 0) {
        EXPECT_TRUE(at::equal(scaled, free)) << "W was there already";
      }
    }
  }
}

}  // namespace
}  // namespace performer
