#include "performer/report/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "performer/report/plot.h"

namespace performer::report {
namespace {

constexpr std::string_view kTrain = kLineColors[0], kValid = kLineColors[1];
constexpr std::string_view kBaseline = kLineColors[3];

// The losses to show: a single spike of training must not flatten the rest.
Axis loss_axis(const Points& train, const std::vector<const Points*>& others) {
  std::vector<double> values, shown;
  values.reserve(train.size());
  for (const Point& point : train) values.push_back(point.y);
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() / 200;
  if (!values.empty()) shown = {values[cut], values[values.size() - 1 - cut]};
  for (const Points* points : others) {
    for (const Point& point : *points) shown.push_back(point.y);
  }
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
  const double margin = 0.04 * (*high - *low);
  return make_axis(*low - margin, *high + margin, 6);
}

// "2.873 (17.7)": a loss and its perplexity.
std::string both(double loss) {
  return std::abs(loss) < 20 ? fmt::format("{:.4g} ({:.4g})", loss, std::exp(loss))
                             : fmt::format("{:.4g}", loss);
}

std::string perplexity_of(double loss) {
  const double perplexity = std::exp(loss);
  return loss >= 0 && perplexity < 1e6 ? fmt::format("{:.4g}", perplexity) : "";
}

}  // namespace

LossCurve read_loss_curve(const std::filesystem::path& metrics, const std::string& title) {
  LossCurve curve{title, read_points(metrics, "loss"), read_points(metrics, "valid_loss")};
  const auto baseline = read_points(metrics, "frequency_loss");
  if (!baseline.empty()) curve.baseline = baseline.back().y;
  return curve;
}

Markup draw(const LossCurve& curve) {
  Plot plot{curve.title, "step", "loss", {}, {}, {}, "perplexity", perplexity_of};
  const Points train = finite_points(curve.train), valid = finite_points(curve.valid);
  if (train.empty() && valid.empty()) {
    plot.title += ": no finite loss";
    return draw(plot);
  }
  const Points mean = smoothed(train);
  const bool one = train.size() == 1;  // its mean is enough
  plot.series = {{"", one ? Points() : train, kTrain, Mark::kLine, 1, 0.35},
                 {train.empty() ? "" : "train, mean " + both(mean.back().y), mean, kTrain},
                 {valid.empty() ? "" : "validation " + both(valid.back().y), valid, kValid,
                  Mark::kLineAndDots, 1, 0.6}};
  fit_axes(plot, Values::kWhole);
  Points baseline;
  if (curve.baseline && std::isfinite(*curve.baseline)) {
    baseline = {{plot.x.low, *curve.baseline}, {plot.x.high, *curve.baseline}};
    plot.series.insert(plot.series.begin(), {"frequencies " + both(*curve.baseline), baseline,
                                             kBaseline, Mark::kDashed, 1.5});
  }
  plot.y = loss_axis(train, {&mean, &valid, &baseline});
  return draw(plot);
}

std::string loss_curve_svg(const LossCurve& curve) { return draw(curve).str(); }

}  // namespace performer::report
