#include "performer/report/picture.h"

#include <cstddef>
#include <cstdint>

namespace performer::report {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const auto byte = i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U;
      group = group << 8 | byte;
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

Markup picture(std::string_view png, const std::string& words) {
  return Markup::leaf("img", {{"src", "data:image/png;base64," + base64(png)},
                              {"alt", words},
                              {"style", "max-width:100%;image-rendering:pixelated"}});
}

}  // namespace performer::report
