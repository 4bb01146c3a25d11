#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

/// GPT-2's alphabet: each byte is a letter that can be seen. Printable ones are themselves, the
/// others U+0100 and on.
namespace performer::data::hf {

namespace internal {
constexpr bool is_itself(std::size_t byte) {
  return (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}
constexpr std::array<char16_t, 256> make_byte_letters() {
  std::array<char16_t, 256> letters{};
  char16_t other = 0x100;
  for (std::size_t byte = 0; byte < letters.size(); ++byte) {
    letters[byte] = is_itself(byte) ? static_cast<char16_t>(byte) : other++;
  }
  return letters;
}
}  // namespace internal

inline constexpr std::array<char16_t, 256> kByteLetters = internal::make_byte_letters();
inline constexpr char32_t kByteLettersEnd = 0x144;

/// The bytes of `text` as letters.
std::string to_byte_letters(std::string_view text);
/// Adds the bytes that the letters of `token` stand for; where one stands for none, the token as it
/// is.
void append_bytes(std::string& bytes, std::string_view token);

}  // namespace performer::data::hf
