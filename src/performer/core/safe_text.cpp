#include "performer/core/safe_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace performer {

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 100;
  const bool cut = text.size() > kShown;
  using Json = nlohmann::json;
  return Json(std::string(text.substr(0, kShown)))
             .dump(-1, ' ', true, Json::error_handler_t::replace) +
         (cut ? "..." : "");
}

std::string printable(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  const auto escape = [&](char c) {
    safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  };
  for (std::size_t valid = utf8_prefix(text); !text.empty(); valid = utf8_prefix(text)) {
    for (std::size_t i = 0; i < valid; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const auto next = i + 1 < valid ? static_cast<unsigned char>(text[i + 1]) : 0U;
      if (byte == 0xc2 && next < 0xa0) {  // U+0080 ... U+009F: control characters of 8 bits
        escape(text[i++]);
        escape(text[i]);
      } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
        escape(text[i]);
      } else {
        safe += text[i];
      }
    }
    if (valid < text.size()) escape(text[valid++]);
    text.remove_prefix(valid);
  }
  return safe;
}

std::size_t utf8_prefix(std::string_view text) {
  const auto within = [&](std::size_t i, unsigned low, unsigned high) {
    const auto byte = i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    return byte >= low && byte <= high;
  };
  std::size_t i = 0;
  while (i < text.size()) {
    const auto first = static_cast<unsigned char>(text[i]);
    // Bytes that follow, and the range of the first of them: no overlong forms, no surrogates,
    // nothing above U+10FFFF.
    const std::size_t follow = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first >= 0x80 && (first < 0xc2 || first > 0xf4)) return i;
    for (std::size_t k = 1; k <= follow; ++k) {
      if (!within(i + k, k == 1 ? low : 0x80, k == 1 ? high : 0xbf)) return i;
    }
    i += follow + 1;
  }
  return i;
}

std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 200;
  return text.size() <= kShown ? text : text.substr(0, utf8_prefix(text.substr(0, kShown))) + "...";
}

}  // namespace performer
