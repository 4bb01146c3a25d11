#include "performer/report/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "performer/report/axis.h"

namespace performer::report {
namespace {

constexpr double kWidth = 800;
constexpr double kHeight = 480;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 48;
constexpr double kBottom = 56;
// Columns of the picture: no more points than this can be told apart.
constexpr std::int64_t kColumns = 710;
// Mid tones, readable on white and on black.
constexpr std::string_view kInk = "#767676";
constexpr std::string_view kTrain = "#3f83cc";
constexpr std::string_view kValid = "#d9730d";

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

struct Frame {
  Axis steps;
  Axis losses;

  double x(std::int64_t step) const {
    return kLeft + steps.position(static_cast<double>(step)) * (kWidth - kLeft - kRight);
  }
  double y(double loss) const {
    // Far outside the picture all is the same; the clip path hides it.
    const double position = std::clamp(losses.position(loss), -1.0, 2.0);
    return kHeight - kBottom - position * (kHeight - kTop - kBottom);
  }
};

// The losses to show: a single spike of training must not flatten the rest.
Axis loss_axis(const LossPoints& train, const LossPoints& mean, const LossPoints& valid) {
  std::vector<double> values;
  values.reserve(train.size());
  for (const LossPoint& point : train) {
    values.push_back(point.loss);
  }
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() / 200;
  std::vector<double> shown;
  if (!values.empty()) {
    shown = {values[cut], values[values.size() - 1 - cut]};
  }
  for (const LossPoints* points : {&mean, &valid}) {
    for (const LossPoint& point : *points) {
      shown.push_back(point.loss);
    }
  }
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
  const double margin = 0.04 * (*high - *low);
  return make_axis(*low - margin, *high + margin, 6);
}

Frame make_frame(const LossPoints& train, const LossPoints& mean, const LossPoints& valid) {
  std::vector<double> ends;
  for (const LossPoints* points : {&train, &valid}) {
    if (!points->empty()) {
      ends.push_back(static_cast<double>(points->front().step));
      ends.push_back(static_cast<double>(points->back().step));
    }
  }
  const auto [first, last] = std::minmax_element(ends.begin(), ends.end());
  return {make_axis(*first, *last, 8, Values::kWhole), loss_axis(train, mean, valid)};
}

std::string axes(const Frame& frame) {
  std::string out;
  const auto at = std::back_inserter(out);
  for (const double tick : frame.losses.ticks) {
    const double y = frame.y(tick);
    fmt::format_to(at,
                   R"(<line x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}" stroke="{}" opacity="0.25"/>)",
                   kLeft, kWidth - kRight, y, y, kInk);
    fmt::format_to(at,
                   R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)"
                   "\n",
                   kLeft - 8, y + 4, tick_label(frame.losses, tick));
  }
  for (const double tick : frame.steps.ticks) {
    const double x = kLeft + frame.steps.position(tick) * (kWidth - kLeft - kRight);
    fmt::format_to(at, R"(<line x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}" stroke="{}"/>)", x, x,
                   kHeight - kBottom, kHeight - kBottom + 5, kInk);
    fmt::format_to(at,
                   R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)"
                   "\n",
                   x, kHeight - kBottom + 20, tick_label(frame.steps, tick));
  }
  fmt::format_to(at,
                 R"(<path d="M{0} {1}V{2}H{3}" fill="none" stroke="{4}"/>)"
                 "\n",
                 kLeft, kTop, kHeight - kBottom, kWidth - kRight, kInk);
  fmt::format_to(at,
                 R"(<text x="{}" y="{}" text-anchor="middle">step</text>)"
                 "\n",
                 (kLeft + kWidth - kRight) / 2, kHeight - 12);
  fmt::format_to(
      at,
      R"svg(<text transform="translate(18 {}) rotate(-90)" text-anchor="middle">loss</text>)svg"
      "\n",
      (kTop + kHeight - kBottom) / 2);
  return out;
}

std::string line(const Frame& frame, const LossPoints& points, std::string_view style) {
  if (points.size() < 2) {
    return "";
  }
  std::string out = R"(<polyline fill="none" points=")";
  for (const LossPoint& point : thinned(points, frame.steps, kColumns)) {
    fmt::format_to(std::back_inserter(out), "{:.1f},{:.1f} ", frame.x(point.step),
                   frame.y(point.loss));
  }
  out.back() = '"';
  return fmt::format("{} {}/>\n", out, style);
}

std::string dots(const Frame& frame, const LossPoints& points, std::string_view color) {
  std::string out;
  for (const LossPoint& point : thinned(points, frame.steps, kColumns)) {
    fmt::format_to(std::back_inserter(out),
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n",
                   frame.x(point.step), frame.y(point.loss), color);
  }
  return out;
}

std::string legend(const LossPoints& train, const LossPoints& valid) {
  std::string out;
  double x = kWidth - kRight;
  const auto entry = [&](const LossPoints& points, const char* name, std::string_view color) {
    if (points.empty()) {
      return;
    }
    fmt::format_to(
        std::back_inserter(out),
        R"(<text x="{0}" y="{1}" text-anchor="end" fill="{2}">&#9679; {3} {4:.4g}</text>)"
        "\n",
        x, kTop - 10, color, name, points.back().loss);
    x -= 170;
  };
  entry(valid, "validation, last", kValid);
  entry(train, "train, last mean", kTrain);
  return out;
}

std::string drawing(const LossCurve& curve) {
  const LossPoints train = finite_points(curve.train);
  const LossPoints valid = finite_points(curve.valid);
  if (train.empty() && valid.empty()) {
    return fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">no finite loss</text>)",
                       kWidth / 2, kHeight / 2);
  }
  const LossPoints mean = smoothed(train);
  const Frame frame = make_frame(train, mean, valid);
  std::string out = axes(frame) + legend(mean, valid);
  fmt::format_to(std::back_inserter(out),
                 R"(<clipPath id="plot"><rect x="{}" y="{}" width="{}" height="{}"/></clipPath>)"
                 "\n<g clip-path=\"url(#plot)\">\n",
                 kLeft, kTop - 4, kWidth - kLeft - kRight + 4, kHeight - kTop - kBottom + 8);
  out += line(frame, train, fmt::format(R"(stroke="{}" stroke-width="1" opacity="0.35")", kTrain));
  out += line(frame, mean, fmt::format(R"(stroke="{}" stroke-width="2")", kTrain));
  out += line(frame, valid, fmt::format(R"(stroke="{}" stroke-width="1" opacity="0.6")", kValid));
  if (train.size() == 1) {
    out += dots(frame, train, kTrain);
  }
  return out + dots(frame, valid, kValid) + "</g>\n";
}

}  // namespace

std::string loss_curve_svg(const LossCurve& curve) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" )"
      R"(font-family="system-ui, sans-serif" font-size="12" fill="{2}" role="img">)"
      "\n<title>{3}</title>\n"
      R"(<text x="{4}" y="22" font-size="15" font-weight="600">{3}</text>)"
      "\n{5}</svg>\n",
      kWidth, kHeight, kInk, escaped(curve.title), kLeft, drawing(curve));
}

}  // namespace performer::report
