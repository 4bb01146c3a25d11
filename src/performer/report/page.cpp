#include "performer/report/page.h"

#include <fmt/format.h>

#include "performer/report/page_parts.h"

namespace performer::report {
namespace {

std::string section_id(std::int64_t number) { return fmt::format("section-{}", number); }

Markup head(std::string_view title) {
  // frame-ancestors and the like need headers of a server, which a file has not.
  const auto policy = fmt::format(
      "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{}'; "
      "base-uri 'none'; form-action 'none'",
      page_script_hash());
  return Markup::element(
      "head", {},
      Markup::leaf("meta", {{"charset", "utf-8"}}) +
          Markup::leaf("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", policy}}) +
          Markup::leaf("meta",
                       {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}) +
          Markup::leaf("meta", {{"name", "color-scheme"}, {"content", "light dark"}}) +
          Markup::element("title", {}, title) + Markup::element("style", {}, page_style()));
}

}  // namespace

Page::Page(std::string_view title, std::string_view about) : title_(title), about_(about) {}

void Page::section(std::string_view heading) {
  close(sections_);
  open_ = {};
  heading_ = heading;
  const auto id = section_id(++count_);
  contents_ += Markup::element("li", {}, Markup::element("a", {{"href", "#" + id}}, heading));
}

void Page::paragraph(std::string_view text) { add(Markup::element("p", {}, text)); }
void Page::add(const Markup& part) { open_ += part; }
void Page::figure(const Markup& picture) {
  add(Markup::element("figure", {{"class", "scroll"}}, picture));
}
void Page::preformatted(std::string_view text) {
  add(Markup::element("pre", {{"tabindex", "0"}}, text));
}
void Page::details(std::string_view summary, const Markup& part) {
  add(Markup::element("details", {}, Markup::element("summary", {}, summary) + part));
}

// What stands before the first section has no heading.
void Page::close(Markup& sections) const {
  if (count_ == 0) {
    sections += open_;
    return;
  }
  const auto id = section_id(count_);
  sections += Markup::element("section", {{"aria-labelledby", id}},
                              Markup::element("h2", {{"id", id}}, heading_) + open_);
}

std::string Page::html() const {
  Markup sections = sections_;
  close(sections);
  Markup header = Markup::element("h1", {}, title_) + Markup::element("p", {}, about_);
  header += Markup::element("button", {{"type", "button"}, {"id", "theme"}, {"hidden", ""}},
                            "Dark or light");
  Markup body = Markup::element("a", {{"class", "skip"}, {"href", "#content"}}, "To the content");
  body += Markup::element("header", {}, header);
  if (count_ > 1) {
    body +=
        Markup::element("nav", {{"aria-label", "Contents"}}, Markup::element("ul", {}, contents_));
  }
  body += Markup::element("main", {{"id", "content"}, {"tabindex", "-1"}}, sections);
  body +=
      Markup::element("footer", {}, Markup::text("Made by performer. This file loads nothing."));
  body += Markup::element("script", {}, page_script());
  return "<!doctype html>\n" +
         Markup::element("html", {{"lang", "en"}}, head(title_) + Markup::element("body", {}, body))
             .str();
}

}  // namespace performer::report
