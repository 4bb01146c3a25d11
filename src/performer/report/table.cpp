#include "performer/report/table.h"

#include <fmt/format.h>

#include <cmath>

namespace performer::report {
namespace {

Markup cell(const Cell& cell) {
  if (!cell.number) return Markup::element("td", {}, cell.text);
  const std::string key = std::isnan(*cell.number) ? "" : fmt::format("{:.17g}", *cell.number);
  return Markup::element("td", {{"class", "number"}, {"data-key", key}}, cell.text);
}

}  // namespace

Markup draw(const Table& table) {
  const bool heads = !table.columns.empty();
  Markup head, body;
  for (const auto& column : table.columns) {
    head += Markup::element("th", {{"scope", "col"}}, column);
  }
  for (const auto& row : table.rows) {
    Markup cells;
    for (const auto& content : row) {
      cells += heads || !cells.empty() ? cell(content)
                                       : Markup::element("th", {{"scope", "row"}}, content.text);
    }
    body += Markup::element("tr", {}, cells);
  }
  Markup content = Markup::element("caption", {}, table.title);
  if (heads) content += Markup::element("thead", {}, Markup::element("tr", {}, head));
  content += Markup::element("tbody", {}, body);
  return Markup::element(
      "div",
      {{"class", "scroll"}, {"role", "region"}, {"tabindex", "0"}, {"aria-label", table.title}},
      Markup::element("table", {{"class", heads ? "sortable" : "facts"}}, content));
}

Markup key_figures(const std::vector<std::pair<std::string, std::string>>& figures) {
  Markup list;
  for (const auto& [what, value] : figures) {
    list += Markup::element("div", {},
                            Markup::element("dt", {}, what) + Markup::element("dd", {}, value));
  }
  return Markup::element("dl", {{"class", "figures"}}, list);
}

}  // namespace performer::report
