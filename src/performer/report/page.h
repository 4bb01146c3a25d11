#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "performer/report/markup.h"

namespace performer::report {

/// One self-contained HTML file: it loads nothing, reads on a phone, in light and dark and by a
/// screen reader, and every control works by keyboard. A content policy lets its own script run and
/// no other. A page is sections of paragraphs, tables, plots and maps:
///
///   Page page("Model", "runs/first, step 1000");
///   page.section("Attention");
///   page.paragraph("How well the features serve.");
///   page.add(draw(heat_map));
///   write_file_atomic(path, page.html());
class Page {
 public:
  /// `about`: one line below the title.
  Page(std::string_view title, std::string_view about);

  /// Begins a section, which the contents at the top lead to.
  void section(std::string_view heading);
  void paragraph(std::string_view text);
  void add(const Markup& part);
  /// A picture that small screens scroll rather than shrink beyond reading.
  void figure(const Markup& picture);
  /// Lines as they are: a recipe, a sample of text.
  void preformatted(std::string_view text);
  /// A part that is folded up until it is asked for.
  void details(std::string_view summary, const Markup& part);

  std::string html() const;

 private:
  std::string title_, about_;
  Markup contents_, sections_, open_;
  std::string heading_;  // of the section that is open
  std::int64_t count_ = 0;

  void close(Markup& sections) const;
};

}  // namespace performer::report
