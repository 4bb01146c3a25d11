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
constexpr double kRight = 72;
constexpr double kTop = 48;
constexpr double kBottom = 56;
// Columns of the picture: no more points than this can be told apart.
constexpr std::int64_t kColumns = 658;
// Mid tones, readable on white and on black.
constexpr std::string_view kInk = "#767676";
constexpr std::string_view kTrain = "#3f83cc";
constexpr std::string_view kValid = "#d9730d";
constexpr std::string_view kBaseline = "#8a63d2";

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

// What is drawn: finite values.
struct Drawn {
  LossPoints train, mean, valid;
  std::optional<double> baseline;
};

// The losses to show: a single spike of training must not flatten the rest.
Axis loss_axis(const Drawn& drawn) {
  std::vector<double> values;
  values.reserve(drawn.train.size());
  for (const LossPoint& point : drawn.train) {
    values.push_back(point.loss);
  }
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() / 200;
  std::vector<double> shown;
  if (!values.empty()) {
    shown = {values[cut], values[values.size() - 1 - cut]};
  }
  for (const LossPoints* points : {&drawn.mean, &drawn.valid}) {
    for (const LossPoint& point : *points) {
      shown.push_back(point.loss);
    }
  }
  if (drawn.baseline) {
    shown.push_back(*drawn.baseline);
  }
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
  const double margin = 0.04 * (*high - *low);
  return make_axis(*low - margin, *high + margin, 6);
}

Frame make_frame(const Drawn& drawn) {
  std::vector<double> ends;
  for (const LossPoints* points : {&drawn.train, &drawn.valid}) {
    if (!points->empty()) {
      ends.push_back(static_cast<double>(points->front().step));
      ends.push_back(static_cast<double>(points->back().step));
    }
  }
  const auto [first, last] = std::minmax_element(ends.begin(), ends.end());
  return {make_axis(*first, *last, 8, Values::kWhole), loss_axis(drawn)};
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
    if (const double perplexity = std::exp(tick); tick >= 0 && perplexity < 1e6) {
      fmt::format_to(at,
                     R"(<text x="{}" y="{:.1f}">{:.4g}</text>)"
                     "\n",
                     kWidth - kRight + 8, y + 4, perplexity);
    }
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
  fmt::format_to(
      at,
      R"svg(<text transform="translate({} {}) rotate(90)" text-anchor="middle">perplexity</text>)svg"
      "\n",
      kWidth - 16, (kTop + kHeight - kBottom) / 2);
  return out;
}

std::string baseline_line(const Frame& frame, double loss) {
  const double y = frame.y(loss);
  return fmt::format(
      "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>\n",
      kLeft, kWidth - kRight, y, y, kBaseline);
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

// "2.873 (17.7)": a loss and its perplexity.
std::string both(double loss) {
  return std::abs(loss) < 20 ? fmt::format("{:.4g} ({:.4g})", loss, std::exp(loss))
                             : fmt::format("{:.4g}", loss);
}

std::string legend(const Drawn& drawn) {
  std::string out;
  double x = kWidth - kRight;
  const auto entry = [&](std::string_view mark, const std::string& text, std::string_view color) {
    fmt::format_to(std::back_inserter(out),
                   R"(<text x="{}" y="{}" text-anchor="end" fill="{}">{} {}</text>)"
                   "\n",
                   x, kTop - 10, color, mark, text);
    x -= 7.0 * static_cast<double>(text.size()) + 28;
  };
  if (!drawn.valid.empty()) {
    entry("&#9679;", "validation " + both(drawn.valid.back().loss), kValid);
  }
  if (!drawn.mean.empty()) {
    entry("&#9679;", "train, mean " + both(drawn.mean.back().loss), kTrain);
  }
  if (drawn.baseline) {
    entry("- -", "frequencies " + both(*drawn.baseline), kBaseline);
  }
  return out;
}

std::string drawing(const LossCurve& curve) {
  Drawn drawn{finite_points(curve.train), {}, finite_points(curve.valid), curve.baseline};
  if (drawn.train.empty() && drawn.valid.empty()) {
    return fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">no finite loss</text>)",
                       kWidth / 2, kHeight / 2);
  }
  if (drawn.baseline && !std::isfinite(*drawn.baseline)) {
    drawn.baseline.reset();
  }
  drawn.mean = smoothed(drawn.train);
  const Frame frame = make_frame(drawn);
  std::string out = axes(frame) + legend(drawn);
  fmt::format_to(std::back_inserter(out),
                 R"(<clipPath id="plot"><rect x="{}" y="{}" width="{}" height="{}"/></clipPath>)"
                 "\n<g clip-path=\"url(#plot)\">\n",
                 kLeft, kTop - 4, kWidth - kLeft - kRight + 4, kHeight - kTop - kBottom + 8);
  if (drawn.baseline) {
    out += baseline_line(frame, *drawn.baseline);
  }
  const auto style = [](double width, double opacity, std::string_view color) {
    return fmt::format(R"(stroke="{}" stroke-width="{}" opacity="{}")", color, width, opacity);
  };
  out += line(frame, drawn.train, style(1, 0.35, kTrain));
  out += line(frame, drawn.mean, style(2, 1, kTrain));
  out += line(frame, drawn.valid, style(1, 0.6, kValid));
  if (drawn.train.size() == 1) {
    out += dots(frame, drawn.train, kTrain);
  }
  return out + dots(frame, drawn.valid, kValid) + "</g>\n";
}

}  // namespace

LossCurve read_loss_curve(const std::filesystem::path& metrics, const std::string& title) {
  LossCurve curve{title, read_points(metrics, "loss"), read_points(metrics, "valid_loss")};
  const auto baseline = read_points(metrics, "frequency_loss");
  if (!baseline.empty()) {
    curve.baseline = baseline.back().loss;
  }
  return curve;
}

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
