#include "performer/core/crc32c.h"

#include <array>

namespace performer {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    }
    table[i] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t value = 0xffffffffU;
  for (const char byte : bytes) {
    value = (value >> 8) ^ kTable[(value ^ static_cast<unsigned char>(byte)) & 0xffU];
  }
  return ~value;
}

}  // namespace performer
