#include "performer/report/page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "performer/core/json.h"
#include "performer/report/color_scale.h"
#include "performer/report/heat_map.h"
#include "performer/report/page_parts.h"
#include "performer/report/plot.h"
#include "performer/report/table.h"
#include "tests/report/markup_support.h"

namespace performer::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kHostile = "</script><script>alert(1)</script><!--\"' onload='x' &amp;";

// Tags in the order of the text; every one that opens is closed, inside what it stands in.
void expect_balanced(const std::string& html) {
  const std::regex tag(R"(<(/?)([a-zA-Z0-9]+)[^>]*?(/?)>)");
  // What a page brings with it is no markup.
  std::string text = html;
  for (const auto& own : {page_script().str(), page_style().str()}) {
    if (const auto at = text.find(own); at != std::string::npos) text.erase(at, own.size());
  }
  std::vector<std::string> open;
  for (std::sregex_iterator match(text.begin(), text.end(), tag), end; match != end; ++match) {
    if ((*match)[3].length() > 0) continue;
    if ((*match)[1].length() == 0) {
      open.push_back((*match)[2]);
    } else {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), (*match)[2].str());
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

HeatMap small_map(const std::string& name) {
  return {name, "layer", "head", {name, "1"}, {"0", name, "2"}, {0, 1, 2, 3, kNone, 5}};
}

std::string page_with(const std::string& name) {
  Page page(name, name);
  page.paragraph(name);
  page.section(name);
  page.add(key_figures({{name, name}}));
  page.add(draw(Table{name, {name, "n"}, {{name, 1.5}, {"b", std::int64_t{12345}}}}));
  page.add(draw(small_map(name)));
  page.section("second");
  page.preformatted(name);
  page.figure(line_plot(name, name, name, {}));
  page.details(name, line_plot(name, name, name, {{name, {{0, 1}, {1, 2}}}}));
  return page.html();
}

TEST(PageTest, TextOfOthersNeverBecomesMarkup) {
  const std::string plain = page_with("name"), hostile = page_with(kHostile);
  expect_balanced(plain);
  expect_balanced(hostile);
  for (const char* part : {"<script", "</script", "<!--", "<svg", "<td", "<p>"}) {
    EXPECT_EQ(count(plain, part), count(hostile, part)) << part;
  }
  EXPECT_GE(count(hostile, "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;!--"), 15);
}

TEST(PageTest, DataReadBackAsTheyWere) {
  const nlohmann::ordered_json data = {{kHostile, {kHostile, 1.5, nullptr, "ü\u2028"}}};
  const std::string element = Markup::data(data).str();
  const std::string begin = "<script type=\"application/json\">", end = "</script>\n";
  ASSERT_TRUE(element.starts_with(begin) && element.ends_with(end));
  const auto inner = element.substr(begin.size(), element.size() - begin.size() - end.size());
  for (const char* part : {"<", ">", "&", "\xe2"}) EXPECT_EQ(inner.find(part), std::string::npos);
  EXPECT_EQ(parse_json(inner, "data"), data);
}

TEST(PageTest, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(Markup::text("a\xff\x01\nb\x7f").str(), "a\xef\xbf\xbd \nb ");
  EXPECT_EQ(Markup::element("p", {{"title", "\"\xc3"}}, "").str(),
            "<p title=\"&quot;\xef\xbf\xbd\"></p>\n");
  EXPECT_NE(Markup::data("\xff<").str().find("\\ufffd\\u003c"), std::string::npos);
}

TEST(PageTest, LoadsNothingAndRunsItsOwnScriptAlone) {
  const std::string html = page_with("name");
  EXPECT_EQ(count(html, "://"), count(html, "http://www.w3.org/2000/svg")) << "namespaces alone";
  for (const char* part : {" src=", "url(", "@import", "javascript:", "fetch("}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(count(html, "script-src &#39;" + page_script_hash() + "&#39;;"), 1);
  EXPECT_NE(html.find("<script>" + page_script().str() + "</script>"), std::string::npos);
}

TEST(PageTest, TheHashOfTheScriptIsThatOfItsBytes) {
  // 32 bytes in base64: 43 digits and one "=".
  EXPECT_TRUE(std::regex_match(page_script_hash(), std::regex("sha256-[A-Za-z0-9+/]{43}=")));
}

TEST(PageTest, SectionsAreNamedByTheirHeadings) {
  const std::string html = page_with("name");
  EXPECT_EQ(count(html, "<section aria-labelledby=\"section-1\">"), 1);
  EXPECT_EQ(count(html, "<h2 id=\"section-2\">second</h2>"), 1);
  EXPECT_EQ(count(html, "<a href=\"#section-2\">second</a>"), 1);
  EXPECT_LT(html.find("<p>name</p>\n<section"), html.find("section-2\">second</h2>"));
  for (const char* part :
       {"<!doctype html>\n<html lang=\"en\"><head>",
        "content=\"width=device-width, initial-scale=1\"",
        "<meta name=\"color-scheme\" content=\"light dark\"/>", "</title>\n<style>", "<main id="}) {
    EXPECT_EQ(count(html, part), 1) << part;
  }
}

TEST(PageTest, TablesSayWhatTheySortBy) {
  const std::string html = draw(Table{"T", {"a", "b"}, {{"x", 1234567.0}, {"y", kNone}}}).str();
  EXPECT_NE(html.find("<td class=\"number\" data-key=\"1234567\">1.23e+06</td>"),
            std::string::npos);
  EXPECT_NE(html.find("<td class=\"number\" data-key=\"\">–</td>"), std::string::npos);
  EXPECT_NE(html.find("<caption>T</caption>"), std::string::npos);
  EXPECT_EQ(count(html, "<th scope=\"col\">"), 2);
  const std::string facts = draw(Table{"F", {}, {{"a", "b"}, {"c", "d"}}}).str();
  EXPECT_EQ(count(facts, "<th scope=\"row\">"), 2);
  EXPECT_EQ(count(facts, "<thead>") + count(facts, "sortable"), 0);
}

TEST(HeatMapTest, EachNumberHasACellOfItsColour) {
  const std::string html = draw(small_map("name")).str();
  EXPECT_EQ(count(html, "h46v24h-46z"), 5) << "a value that is no number has none";
  EXPECT_NE(html.find("fill=\"" + level_color(Scale::kSequential, 0) + "\""), std::string::npos);
  EXPECT_NE(html.find(R"("values":["0","1","2","3",null,"5"])"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
  // The last cell: row 1, column 2.
  const auto left = std::stod(html.substr(html.find("data-left=\"") + 11));
  EXPECT_NE(html.find("M" + pixels(left + 92) + " 64h46v24h-46z\" fill=\"" +
                      level_color(Scale::kSequential, kLevels - 1)),
            std::string::npos);
}

TEST(HeatMapTest, ADivergingScaleIsPaleAtZero) {
  HeatMap map = small_map("name");
  map.scale = Scale::kDiverging;
  map.values = {-1, 0, 4, -4, 0, 0};
  const std::string html = draw(map).str();
  EXPECT_NE(html.find("-4 "), std::string::npos);
  EXPECT_NE(html.find("fill=\"" + level_color(Scale::kDiverging, 32) + "\""), std::string::npos);
  EXPECT_EQ(level_color(Scale::kDiverging, 0), "#2166ac");
  EXPECT_TRUE(is_light(Scale::kDiverging, 32));
  EXPECT_FALSE(is_light(Scale::kSequential, 0));
}

TEST(HeatMapTest, AScanOfALongProteinStaysSmall) {
  HeatMap map{"scan", "letter", "position", {}, {}, {}};
  for (int i = 0; i < 20; ++i) map.rows.emplace_back(1, static_cast<char>('A' + i));
  for (int i = 0; i < 2000; ++i) map.columns.push_back(std::to_string(i + 1));
  for (int i = 0; i < 40'000; ++i) map.values.push_back(std::sin(i));
  const std::string html = draw(map).str();
  EXPECT_LT(html.size(), 2'000'000U);
  EXPECT_LE(count(html, "<path"), kLevels);
  const std::string none = draw(HeatMap{"none", "r", "c", {}, {}, {}}).str();
  EXPECT_EQ(none.find("nan"), std::string::npos);
  EXPECT_EQ(none.find("inf"), std::string::npos);
}

TEST(PlotTest, TheLegendTakesAsManyRowsAsItNeeds) {
  std::vector<NamedPoints> lines;
  for (int i = 0; i < 9; ++i) {
    lines.push_back({"a line of a long name " + std::to_string(i), {{0, 1.0 + i}, {6, 2.0 + i}}});
  }
  const std::string svg = line_plot("title", "layer", "error", lines).str();
  EXPECT_EQ(count(svg, "<polyline"), 9);
  const std::regex entry(R"re(<text x="([0-9.]+)" y="([0-9.]+)"[^>]*>● a line)re");
  for (std::sregex_iterator match(svg.begin(), svg.end(), entry), end; match != end; ++match) {
    EXPECT_GE(std::stod((*match)[1]), 200);  // room for its text to the left
    EXPECT_GE(std::stod((*match)[2]), 36);   // below the title
  }
  expect_balanced(svg);
}

TEST(PlotTest, ValuesThatCannotBeDrawnAreLeftOut) {
  const std::string svg =
      line_plot("t", "x", "y", {{"a", {{0, kNone}, {1, 2}, {2, INFINITY}}}, {"b", {}}}).str();
  EXPECT_EQ(count(svg, "<circle"), 1);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(line_plot("t", "x", "y", {}).str().find("nothing to draw"), std::string::npos);
}

TEST(NumberTest, NumbersReadWell) {
  EXPECT_EQ(number_text(0.123456), "0.123");
  EXPECT_EQ(number_text(12345.6), "12,346");
  EXPECT_EQ(number_text(1e9), "1e+09");
  EXPECT_EQ(number_text(kNone), "–");
  EXPECT_EQ(number_text(INFINITY), "∞");
  EXPECT_EQ(count_text(-1234567), "-1,234,567");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(pixels(-0.01), "0");
}

}  // namespace
}  // namespace performer::report
