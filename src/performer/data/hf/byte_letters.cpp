#include "performer/data/hf/byte_letters.h"

#include "performer/data/hf/unicode.h"

namespace performer::data::hf {
namespace {

constexpr std::int16_t kNone = -1;

constexpr std::array<std::int16_t, kByteLettersEnd> make_bytes() {
  std::array<std::int16_t, kByteLettersEnd> bytes{};
  bytes.fill(kNone);
  for (std::size_t byte = 0; byte < kByteLetters.size(); ++byte) {
    bytes[kByteLetters[byte]] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}
constexpr auto kByteOfLetter = make_bytes();

}  // namespace

std::string to_byte_letters(std::string_view text) {
  std::string letters;
  letters.reserve(text.size() * 2);
  for (const char c : text) append_letter(letters, kByteLetters[static_cast<unsigned char>(c)]);
  return letters;
}

void append_bytes(std::string& bytes, std::string_view token) {
  const std::size_t before = bytes.size();
  for (std::size_t i = 0; i < token.size();) {
    const char32_t letter = next_letter(token, i);
    const auto byte = letter < kByteLettersEnd ? kByteOfLetter[letter] : kNone;
    if (byte == kNone) {
      bytes.resize(before);
      bytes += token;
      return;
    }
    bytes += static_cast<char>(byte);
  }
}

}  // namespace performer::data::hf
