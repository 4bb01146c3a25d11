#include "performer/cli/quality_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "performer/report/heat_map.h"
#include "performer/report/plot.h"
#include "performer/report/table.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;
using infer::FeatureQuality;
using infer::HeadQuality;
using report::number_text;

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json to_json(const FeatureQuality& f) {
  return {{"features", f.features},
          {"error", finite(f.error)},
          {"predicted_variance", finite(f.predicted)},
          {"effective_samples", finite(f.effective_samples)}};
}

Json to_json(const HeadQuality& h) {
  Json by_features = Json::array();
  for (const auto& f : h.by_features) by_features.push_back(to_json(f));
  return {{"layer", h.layer},
          {"head", h.head},
          {"query_norm", finite(h.query_norm)},
          {"key_norm", finite(h.key_norm)},
          {"squared_sum", finite(h.squared_sum)},
          {"uniform_error", finite(h.uniform_error)},
          {"suggested_features", finite(h.suggested_features)},
          {"own", std::isnan(h.own.error) ? Json() : to_json(h.own)},
          {"by_features", by_features},
          {"beats_average", h.beats_average()}};
}

// A number of each head, and what its column is called.
struct Column {
  std::string name;
  std::function<double(const HeadQuality&)> value;
};

bool any_own(const std::vector<HeadQuality>& heads) {
  return std::ranges::any_of(heads, [](const auto& h) { return !std::isnan(h.own.error); });
}

std::vector<Column> columns_of(const std::vector<HeadQuality>& heads) {
  std::vector<Column> columns = {
      {"|x|²", [](const auto& h) { return h.query_norm; }},
      {"|y|²", [](const auto& h) { return h.key_norm; }},
      {"|x+y|²", [](const auto& h) { return h.squared_sum; }},
      {"average", [](const auto& h) { return h.uniform_error; }},
  };
  if (any_own(heads)) {
    columns.push_back({"own", [](const auto& h) { return h.own.error; }});
    columns.push_back({"effective", [](const auto& h) { return h.own.effective_samples; }});
  }
  for (std::size_t i = 0; i < heads.front().by_features.size(); ++i) {
    columns.push_back({fmt::format("m={}", heads.front().by_features[i].features),
                       [i](const auto& h) { return h.by_features[i].error; }});
  }
  columns.push_back({"suggested m", [](const auto& h) { return h.suggested_features; }});
  return columns;
}

report::HeatMap map_of(const std::vector<HeadQuality>& heads, const std::string& title,
                       const std::function<double(const HeadQuality&)>& value) {
  report::HeatMap map{title, "layer", "head", {}, {}, {}};
  std::vector<std::int64_t> layers;
  std::int64_t widest = 0;
  for (const auto& h : heads) {
    if (layers.empty() || layers.back() != h.layer) layers.push_back(h.layer);
    widest = std::max(widest, h.head + 1);
  }
  for (const auto layer : layers) map.rows.push_back(std::to_string(layer));
  for (std::int64_t i = 0; i < widest; ++i) map.columns.push_back(std::to_string(i));
  for (const auto& h : heads) map.values.push_back(value(h));
  return map;
}

report::Table table_of(const std::vector<HeadQuality>& heads, const std::string& title) {
  const auto columns = columns_of(heads);
  report::Table table{title, {"layer", "head"}, {}};
  for (const auto& column : columns) table.columns.push_back(column.name);
  for (const auto& h : heads) {
    std::vector<report::Cell> row = {h.layer, h.head};
    for (const auto& column : columns) row.emplace_back(column.value(h));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Errors are comparable on one scale.
void add_error_map(report::Page& page, const std::vector<HeadQuality>& heads,
                   const std::string& title,
                   const std::function<double(const HeadQuality&)>& value) {
  auto map = map_of(heads, title, value);
  map.low = 0, map.high = 1;
  page.add(draw(map));
}

double widest_error(const HeadQuality& h) { return h.by_features.back().error; }

void add_maps(report::Page& page, const AttentionReport& report) {
  const auto& exact = report.exact.empty() ? report.heads : report.exact;
  const bool own = any_own(report.heads);
  page.add(draw(
      map_of(exact, "Mean |x + y|²: the random features that a head needs grow as its exponential",
             [](const auto& h) { return h.squared_sum; })));
  if (own) {
    add_error_map(page, report.heads, "Error of the model's own features",
                  [](const auto& h) { return h.own.error; });
  }
  if (!own || !report.exact.empty()) {
    add_error_map(page, exact,
                  fmt::format("Error that {} random features would have, nothing fitted",
                              exact.front().by_features.back().features),
                  widest_error);
  }
  add_error_map(page, exact, "Error of plain averaging",
                [](const auto& h) { return h.uniform_error; });
}

report::Points points_of(const std::vector<double>& errors) {
  report::Points points;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    points.push_back({static_cast<double>(i + 1), errors[i]});
  }
  return points;
}

}  // namespace

Json to_json(const AttentionReport& report) {
  Json heads = Json::array(), growth = Json::array();
  for (const auto& h : report.heads) heads.push_back(to_json(h));
  for (const auto& g : report.growth) {
    Json errors = Json::array();
    for (const double error : g.errors) errors.push_back(finite(error));
    growth.push_back({{"name", g.name}, {"errors", errors}});
  }
  Json json = {{"rows", report.rows}, {"heads", heads}, {"growth", growth}};
  if (report.exact.empty()) return json;
  json["exact_heads"] = Json::array();
  for (const auto& h : report.exact) json["exact_heads"].push_back(to_json(h));
  return json;
}

std::string verdict(const std::vector<HeadQuality>& heads) {
  const auto better = std::ranges::count_if(heads, [](const auto& h) { return h.beats_average(); });
  const std::string whose =
      any_own(heads) ? "the model's own features"
                     : fmt::format("{} random features", heads.front().by_features.back().features);
  const auto all = std::ssize(heads);
  if (better == all) return fmt::format("in all {} heads {} beat plain averaging", all, whose);
  return fmt::format(
      "in {} of {} heads {} beat plain averaging; the others are too sharp for them: fitted "
      "features (performer convert --fit) or a near field help",
      better, all, whose);
}

std::string to_text(const AttentionReport& report) {
  if (report.heads.empty()) return "";
  const auto columns = columns_of(report.heads);
  // Widths count letters, not the bytes of "²".
  const auto padded = [](const std::string& text, std::size_t letters) {
    return std::string(letters < 12 ? 12 - letters : 1, ' ') + text;
  };
  const auto letters = [](const std::string& text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
  };
  std::string out = fmt::format("\n{:>5}{:>6}", "layer", "head");
  for (const auto& column : columns) out += padded(column.name, letters(column.name));
  for (const auto& h : report.heads) {
    out += fmt::format("\n{:>5}{:>6}", h.layer, h.head);
    for (const auto& column : columns) {
      const auto text = number_text(column.value(h));
      out += padded(text, letters(text));
    }
  }
  out += "\n" + verdict(report.heads) + "\n";
  if (report.growth.empty()) return out;
  out += "\nerror of the hidden states after each layer, against exact attention\n";
  for (const auto& g : report.growth) {
    out += fmt::format("{:<24}", g.name);
    for (const double error : g.errors) out += fmt::format("{:>8}", number_text(error, 2));
    out += "\n";
  }
  return out;
}

void add_sections(report::Page& page, const AttentionReport& report) {
  if (report.heads.empty()) return;
  page.section("Attention of layers and heads");
  page.paragraph("Measured on " + report.rows + ": " + verdict(report.heads) + ".");
  add_maps(page, report);
  if (!report.growth.empty()) {
    page.section("Growth of the error over layers");
    page.paragraph(
        "|h' − h| / |h| of the hidden states: h with exact attention, h' with features, the same "
        "weights.");
    std::vector<report::NamedPoints> lines;
    for (const auto& g : report.growth) lines.push_back({g.name, points_of(g.errors)});
    page.figure(line_plot("Error of the hidden states", "after layer", "relative error", lines));
  }
  page.section("Numbers");
  page.paragraph(
      "x and y are queries and keys times the root of the scale. “average” is the error of the "
      "plain mean of the values, which features must beat; m=… are those of so many positive "
      "orthogonal random features, “own” the model's; “suggested m” is where the predicted "
      "relative variance of one weight is 0.01.");
  page.add(draw(table_of(report.heads, "All heads")));
  if (!report.exact.empty()) {
    page.add(draw(table_of(report.exact, "All heads of the model before, with exact attention")));
  }
}

}  // namespace performer::cli
