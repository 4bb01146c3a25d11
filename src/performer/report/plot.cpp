#include "performer/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace performer::report {
namespace {

constexpr double kWidth = 800, kHeight = 480;
constexpr double kLeft = 70, kRight = 72, kTop = 48, kBottom = 56;
constexpr double kRow = 18;  // of the legend
// Columns of the picture: no more points than this can be told apart.
constexpr auto kColumns = static_cast<std::int64_t>(kWidth - kLeft - kRight);
constexpr const char* kInk = "#767676";  // a mid tone, too

struct Entry {
  double x, y;
  const Series* series;
};

// Entries from right to left, in as many rows as they need; y counts rows from the lowest.
std::vector<Entry> lay_out_legend(const std::vector<Series>& series) {
  std::vector<Entry> entries;
  double x = kWidth - kRight, row = 0;
  for (auto s = series.rbegin(); s != series.rend(); ++s) {
    if (s->name.empty()) continue;
    const double width = 7.0 * static_cast<double>(s->name.size()) + 28;
    if (x < kWidth - kRight && x - width < kLeft) x = kWidth - kRight, row += 1;
    entries.push_back({x, row, &*s});
    x -= width;
  }
  return entries;
}

class Drawing {
 public:
  explicit Drawing(const Plot& plot)
      : plot_(plot),
        legend_(lay_out_legend(plot.series)),
        top_(kTop + (legend_.empty() ? 0 : kRow * legend_.back().y)) {}

  double height() const { return kHeight + top_ - kTop; }

  Markup axes() const {
    Markup out;
    for (const double tick : plot_.y.ticks) out += y_tick(tick);
    for (const double tick : plot_.x.ticks) out += x_tick(tick);
    out += Markup::leaf(
        "path",
        {{"d", fmt::format("M{} {}V{}H{}", kLeft, pixels(top_), pixels(bottom()), kWidth - kRight)},
         {"fill", "none"},
         {"stroke", kInk}});
    out += label((kLeft + kWidth - kRight) / 2, height() - 12, "middle", plot_.x_title);
    out += turned(18, -90, plot_.y_title);
    if (plot_.right_label) out += turned(kWidth - 16, 90, plot_.right_title);
    return out;
  }

  Markup legend() const {
    Markup out;
    for (const auto& [x, row, series] : legend_) {
      const char* mark = series->mark == Mark::kDashed ? "- -" : "●";
      out += Markup::element("text",
                             {{"x", pixels(x)},
                              {"y", pixels(top_ - 10 - kRow * row)},
                              {"text-anchor", "end"},
                              {"style", fmt::format("fill:{}", series->color)}},
                             fmt::format("{} {}", mark, series->name));
    }
    return out;
  }

  // In a picture of its own, which cuts off what lies beyond; coordinates stay.
  Markup lines() const {
    const double x = kLeft - 4, y = top_ - 4, width = kWidth - kLeft - kRight + 8,
                 height = bottom() - top_ + 8;
    Markup content;
    for (const Series& series : plot_.series) {
      const Points points = thinned(series.points, plot_.x, kColumns);
      const bool line = series.mark != Mark::kDots && points.size() > 1;
      if (line) content += polyline(series, points);
      const bool dots = series.mark == Mark::kDots || series.mark == Mark::kLineAndDots;
      if (dots || points.size() == 1) content += circles(series, points);
    }
    return Markup::element("svg",
                           {{"x", pixels(x)},
                            {"y", pixels(y)},
                            {"width", pixels(width)},
                            {"height", pixels(height)},
                            {"viewBox", fmt::format("{} {} {} {}", pixels(x), pixels(y),
                                                    pixels(width), pixels(height))}},
                           content);
  }

 private:
  double bottom() const { return height() - kBottom; }
  double x(double value) const { return kLeft + plot_.x.position(value) * kColumns; }
  double y(double value) const {
    // Far outside the picture all is the same, and cut off.
    return bottom() - std::clamp(plot_.y.position(value), -1.0, 2.0) * (bottom() - top_);
  }

  static Markup label(double x, double y, const char* anchor, const std::string& text) {
    return Markup::element("text", {{"x", pixels(x)}, {"y", pixels(y)}, {"text-anchor", anchor}},
                           text);
  }

  Markup turned(double x, int degrees, const std::string& text) const {
    return Markup::element("text",
                           {{"transform", fmt::format("translate({} {}) rotate({})", x,
                                                      pixels((top_ + bottom()) / 2), degrees)},
                            {"text-anchor", "middle"}},
                           text);
  }

  Markup y_tick(double tick) const {
    Markup out = Markup::leaf("line", {{"x1", pixels(kLeft)},
                                       {"x2", pixels(kWidth - kRight)},
                                       {"y1", pixels(y(tick))},
                                       {"y2", pixels(y(tick))},
                                       {"stroke", kInk},
                                       {"opacity", "0.25"}});
    out += label(kLeft - 8, y(tick) + 4, "end", tick_label(plot_.y, tick));
    const std::string right = plot_.right_label ? plot_.right_label(tick) : std::string();
    if (!right.empty()) out += label(kWidth - kRight + 8, y(tick) + 4, "start", right);
    return out;
  }

  Markup x_tick(double tick) const {
    return Markup::leaf("line", {{"x1", pixels(x(tick))},
                                 {"x2", pixels(x(tick))},
                                 {"y1", pixels(bottom())},
                                 {"y2", pixels(bottom() + 5)},
                                 {"stroke", kInk}}) +
           label(x(tick), bottom() + 20, "middle", tick_label(plot_.x, tick));
  }

  Markup polyline(const Series& series, const Points& points) const {
    std::string places;
    for (const auto& point : points) {
      fmt::format_to(std::back_inserter(places), "{},{} ", pixels(x(point.x)), pixels(y(point.y)));
    }
    places.pop_back();
    if (series.mark == Mark::kDashed) {
      return Markup::leaf("polyline", {{"fill", "none"},
                                       {"points", places},
                                       {"stroke", std::string(series.color)},
                                       {"stroke-width", fmt::format("{}", series.width)},
                                       {"stroke-dasharray", "6 4"}});
    }
    return Markup::leaf("polyline", {{"fill", "none"},
                                     {"points", places},
                                     {"stroke", std::string(series.color)},
                                     {"stroke-width", fmt::format("{}", series.width)},
                                     {"opacity", fmt::format("{}", series.opacity)}});
  }

  Markup circles(const Series& series, const Points& points) const {
    Markup out;
    for (const auto& point : points) {
      out += Markup::leaf("circle", {{"cx", pixels(x(point.x))},
                                     {"cy", pixels(y(point.y))},
                                     {"r", "3.5"},
                                     {"fill", std::string(series.color)}});
    }
    return out;
  }

  const Plot& plot_;
  std::vector<Entry> legend_;
  double top_;
};

bool is_empty(const Plot& plot) {
  return std::ranges::all_of(plot.series, [](const Series& s) { return s.points.empty(); });
}

}  // namespace

void fit_axes(Plot& plot, Values x_values) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double left = kNone, right = -kNone, low = kNone, high = -kNone;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      left = std::min(left, x), right = std::max(right, x);
      low = std::min(low, y), high = std::max(high, y);
    }
  }
  if (left > right) return;
  const double margin = 0.04 * (high - low);
  plot.x = make_axis(left, right, 8, x_values);
  const bool from_zero = low >= 0 && low < 0.5 * high;
  plot.y = make_axis(from_zero ? 0 : low - margin, high + margin, 6);
}

Markup draw(const Plot& plot) {
  const Drawing drawing(plot);
  Markup content = Markup::element("title", {}, plot.title);
  content += Markup::element(
      "text", {{"x", pixels(kLeft)}, {"y", "22"}, {"font-size", "15"}, {"font-weight", "600"}},
      plot.title);
  if (is_empty(plot)) {
    content += Markup::element(
        "text", {{"x", pixels(kWidth / 2)}, {"y", pixels(kHeight / 2)}, {"text-anchor", "middle"}},
        "nothing to draw");
  } else {
    content += drawing.axes() + drawing.legend() + drawing.lines();
  }
  const auto height = pixels(drawing.height());
  return Markup::element("svg",
                         {{"xmlns", "http://www.w3.org/2000/svg"},
                          {"viewBox", fmt::format("0 0 {} {}", kWidth, height)},
                          {"width", pixels(kWidth)},
                          {"height", height},
                          {"font-family", "system-ui, sans-serif"},
                          {"font-size", "12"},
                          {"fill", kInk},
                          {"role", "img"},
                          {"class", "plot"}},
                         content);
}

Markup line_plot(const std::string& title, const std::string& x_title, const std::string& y_title,
                 const std::vector<NamedPoints>& lines) {
  Plot plot{title, x_title, y_title, {}, {}, {}, {}, {}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    plot.series.push_back({lines[i].name, finite_points(lines[i].points),
                           kLineColors[i % kLineColors.size()], Mark::kLineAndDots});
  }
  fit_axes(plot, Values::kWhole);
  return draw(plot);
}

}  // namespace performer::report
