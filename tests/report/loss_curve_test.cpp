#include "performer/report/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "performer/core/file.h"
#include "performer/report/axis.h"
#include "performer/report/points.h"
#include "tests/report/markup_support.h"
#include "tests/support/temporary_folder.h"

namespace performer::report {
namespace {

using ::performer::testing::TemporaryFolder;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

LossCurve curve_of(std::int64_t num_points) {
  LossCurve curve{"Run", {}, {}};
  for (std::int64_t i = 0; i < num_points; ++i) {
    const auto x = static_cast<double>(i) / static_cast<double>(num_points);
    curve.train.push_back({static_cast<double>(i + 1),
                           2.8 + std::exp(-8 * x) + 0.1 * std::sin(static_cast<double>(i) * 2.4)});
  }
  return curve;
}

// All numbers of coordinates lie on the picture or, for lines, not far outside.
void expect_drawable(const std::string& svg) {
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf,"), std::string::npos);
  EXPECT_EQ(count(svg, "<svg"), count(svg, "</svg>"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, "<g"), count(svg, "</g>"));
  EXPECT_EQ(count(svg, "://"), 1) << "only the namespace";
  const std::regex circle(R"(cx="(-?[0-9.]+)\" cy="(-?[0-9.]+)\")");
  for (std::sregex_iterator match(svg.begin(), svg.end(), circle), end; match != end; ++match) {
    EXPECT_TRUE(std::stod((*match)[1]) >= 69 && std::stod((*match)[1]) <= 729);
    EXPECT_TRUE(std::stod((*match)[2]) >= 47 && std::stod((*match)[2]) <= 425);
  }
}

TEST(LossCurveTest, DrawsTrainingItsMeanAndValidation) {
  LossCurve curve = curve_of(200);
  curve.valid = {{50, 3.2}, {100, 3.0}, {200, 2.9}};
  const std::string svg = loss_curve_svg(curve);
  expect_drawable(svg);
  EXPECT_EQ(count(svg, "<polyline"), 3);
  EXPECT_EQ(count(svg, "<circle"), 3);
  EXPECT_NE(svg.find("validation 2.9 (18.17)<"), std::string::npos);
  EXPECT_EQ(svg.find("stroke-dasharray"), std::string::npos);
  EXPECT_EQ(svg, loss_curve_svg(curve));
}

TEST(LossCurveTest, DrawsTheBaselineWhereItIsAndPerplexitiesBeside) {
  LossCurve curve = curve_of(200);
  curve.baseline = 2.5;  // below all losses: the axis reaches down to it
  const std::string svg = loss_curve_svg(curve);
  expect_drawable(svg);
  EXPECT_EQ(count(svg, "stroke-dasharray"), 1);
  EXPECT_NE(svg.find("frequencies 2.5 (12.18)<"), std::string::npos);
  EXPECT_NE(svg.find(">perplexity<"), std::string::npos);
  EXPECT_NE(svg.find(">20.09</text>"), std::string::npos);  // beside the tick of loss 3
  curve.baseline = kNan;
  EXPECT_EQ(loss_curve_svg(curve).find("stroke-dasharray"), std::string::npos);
}

TEST(LossCurveTest, TheBaselineOfARunIsReadFromItsMetrics) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "m",
                    "{\"step\":0,\"event\":\"baselines\",\"frequency_loss\":2.75}\n"
                    "{\"step\":1,\"loss\":3}\n{\"step\":1,\"valid_loss\":2.5}\n");
  const LossCurve curve = read_loss_curve(folder / "m", "Run");
  EXPECT_EQ(curve.baseline, 2.75);
  ASSERT_EQ(curve.train.size(), 1);
  ASSERT_EQ(curve.valid.size(), 1);
  EXPECT_FALSE(read_loss_curve(folder / "none", "Run").baseline.has_value());
}

TEST(LossCurveTest, TextOfOthersIsNoMarkup) {
  LossCurve curve = curve_of(3);
  curve.title = "a<script>\"&'\x01";
  const std::string svg = loss_curve_svg(curve);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;script&gt;&quot;&amp;&#39; <"), std::string::npos);
}

TEST(LossCurveTest, WorksForFewPoints) {
  for (const LossCurve& curve :
       {curve_of(0), curve_of(1), curve_of(2), LossCurve{"v", {}, {{5, 1.0}}},
        LossCurve{"flat", {{1, 2.0}, {2, 2.0}}, {}}, LossCurve{"zero", {{0, 0.0}}, {{0, 0.0}}},
        LossCurve{"not finite", {{1, kNan}}, {{1, INFINITY}}}}) {
    expect_drawable(loss_curve_svg(curve));
  }
  EXPECT_EQ(count(loss_curve_svg(curve_of(1)), "<circle"), 1);
  EXPECT_NE(loss_curve_svg(curve_of(0)).find("no finite loss"), std::string::npos);
}

TEST(LossCurveTest, AMillionPointsGiveASmallPicture) {
  LossCurve curve = curve_of(1'000'000);
  curve.train[500'000].y = 1e9;
  curve.train[500'001].y = kNan;
  const std::string svg = loss_curve_svg(curve);
  expect_drawable(svg);
  EXPECT_LT(svg.size(), 60'000);
}

TEST(PointsTest, ThinningKeepsTheExtremesOfEachColumn) {
  const LossCurve curve = curve_of(100'000);
  const Axis steps = make_axis(1, 100'000, 8);
  const Points thin = thinned(curve.train, steps, 10);
  ASSERT_EQ(thin.size(), 20);
  double highest = 0;
  for (std::size_t i = 0; i < 10'000; ++i) {
    highest = std::max(highest, curve.train[i].y);
  }
  EXPECT_EQ(std::max(thin[0].y, thin[1].y), highest);
  for (std::size_t i = 1; i < thin.size(); ++i) {
    EXPECT_LT(thin[i - 1].x, thin[i].x);
  }
}

TEST(PointsTest, TheMeanOfAConstantIsTheConstant) {
  const Points mean = smoothed(Points(500, {1, 3.0}));
  EXPECT_NEAR(mean.front().y, 3, 1e-12);
  EXPECT_NEAR(mean.back().y, 3, 1e-12);
}

TEST(PointsTest, ReadsOneKeyOfTheMetrics) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "m",
                    "{\"step\":1,\"loss\":2.5}\n{\"step\":1,\"valid\":3}\nnonsense\n"
                    "{\"step\":2,\"loss\":null}\n{\"step\":3,\"loss\":2}\n{\"st");
  const Points points = read_points(folder / "m", "loss");
  ASSERT_EQ(points.size(), 2);
  EXPECT_EQ(points[1].x, 3);
  EXPECT_EQ(points[0].y, 2.5);
}

TEST(AxisTest, TicksAreRoundAndInside) {
  const auto labels = [](double low, double high) {
    std::vector<std::string> texts;
    const Axis axis = make_axis(low, high, 5);
    for (const double tick : axis.ticks) {
      texts.push_back(tick_label(axis, tick));
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(labels(0, 100), (Texts{"0", "20", "40", "60", "80", "100"}));
  EXPECT_EQ(labels(1, 1'000'000), (Texts{"0.2M", "0.4M", "0.6M", "0.8M", "1.0M"}));
  EXPECT_EQ(labels(0, 2000), (Texts{"0", "500", "1000", "1500", "2000"}));
  EXPECT_EQ(labels(0, 50'000), (Texts{"0", "10k", "20k", "30k", "40k", "50k"}));
  EXPECT_EQ(labels(0, 5'000'000), (Texts{"0", "1M", "2M", "3M", "4M", "5M"}));
  EXPECT_EQ(labels(2.81, 2.97), (Texts{"2.85", "2.90", "2.95"}));
  EXPECT_EQ(labels(-1, 1), (Texts{"-1.0", "-0.5", "0", "0.5", "1.0"}));
}

TEST(AxisTest, StepsAreWholeNumbers) {
  EXPECT_EQ(make_axis(1, 1, 8, Values::kWhole).ticks, std::vector<double>{1});
  EXPECT_EQ(make_axis(1, 3, 8, Values::kWhole).ticks, (std::vector<double>{1, 2, 3}));
}

}  // namespace
}  // namespace performer::report
