#include "performer/report/markup.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "performer/core/safe_text.h"

namespace performer::report {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// The one place that escapes. What it gives is text in elements and in quoted attributes alike.
void append_escaped(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const auto good = utf8_prefix(text);
    for (const char c : text.substr(0, good)) {
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
        case '\'':
          out += "&#39;";
          break;
        default:
          out += (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f ? ' ' : c;
      }
    }
    text.remove_prefix(good);
    if (text.empty()) return;
    out += kReplacement;
    text.remove_prefix(1);
  }
}

void append_tag(std::string& out, Name name, std::initializer_list<Attribute> attributes) {
  out += '<';
  out += name.text();
  for (const auto& [key, value] : attributes) {
    out += ' ';
    out += key.text();
    out += "=\"";
    append_escaped(out, value);
    out += '"';
  }
}

}  // namespace

Markup Markup::text(std::string_view text) {
  Markup markup;
  append_escaped(markup.text_, text);
  return markup;
}

Markup Markup::element(Name name, std::initializer_list<Attribute> attributes,
                       const Markup& content) {
  Markup markup;
  append_tag(markup.text_, name, attributes);
  markup.text_ += fmt::format(">{}</{}>\n", content.text_, name.text());
  return markup;
}

Markup Markup::element(Name name, std::initializer_list<Attribute> attributes,
                       std::string_view text) {
  return element(name, attributes, Markup::text(text));
}

Markup Markup::leaf(Name name, std::initializer_list<Attribute> attributes) {
  Markup markup;
  append_tag(markup.text_, name, attributes);
  markup.text_ += "/>\n";
  return markup;
}

Markup Markup::data(const nlohmann::ordered_json& json) {
  // ASCII alone. Outside of strings JSON has none of these three letters.
  const auto text =
      json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
  Markup content;
  for (const char c : text) {
    const bool special = c == '<' || c == '>' || c == '&';
    content.text_ +=
        special ? fmt::format("\\u{:04x}", static_cast<unsigned>(c)) : std::string(1, c);
  }
  return element("script", {{"type", "application/json"}}, content);
}

Markup Markup::literal(Literal literal) {
  Markup markup;
  markup.text_ = literal.text();
  return markup;
}

std::string pixels(double value) {
  auto text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string number_text(double value, std::int64_t digits) {
  if (std::isnan(value)) return "–";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  const double size = std::abs(value);
  if (size >= std::pow(10.0, static_cast<double>(digits)) && size < 1e6) {
    return count_text(static_cast<std::int64_t>(std::llround(value)));
  }
  return fmt::format("{:.{}g}", value, digits);
}

std::string count_text(std::int64_t value) {
  const auto digits = fmt::format("{}", value < 0 ? -value : value);
  std::string text = value < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace performer::report
