#include "performer/data/encoding.h"

#include <algorithm>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::data {

void check_utf8(std::string_view text, const std::string& place) {
  const std::size_t good = utf8_prefix(text);
  if (good == text.size()) return;
  fail(ExitCode::kBadInput,
       "{}: byte 0x{:02x} in column {} is not UTF-8; convert the file first, as Latin-1 by: iconv "
       "-f LATIN1 -t UTF-8",
       place, static_cast<unsigned char>(text[good]), good + 1);
}

void check_utf8_lines(std::string_view text, const std::string& file) {
  const std::size_t good = utf8_prefix(text);
  if (good == text.size()) return;
  const auto before = text.substr(0, good);
  const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 = 0: the first line
  check_utf8(text.substr(begin), fmt::format("{}:{}", file, 1 + std::ranges::count(before, '\n')));
}

}  // namespace performer::data
