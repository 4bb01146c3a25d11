#include "performer/data/alphabet.h"

namespace performer::data::alphabet {
namespace {

constexpr std::array<std::uint8_t, 256> make_meanings() {
  std::array<std::uint8_t, 256> meaning{};
  for (std::size_t byte = 0; byte < meaning.size(); ++byte) {
    meaning[byte] = byte < 0x20 || byte >= 0x7F ? kBinary : kInvalid;
  }
  for (std::size_t i = 0; i < kLetters.size(); ++i) {
    const auto letter = static_cast<unsigned char>(kLetters[i]);
    const auto token = static_cast<std::uint8_t>(kFirstLetter + i);
    meaning[letter] = token;
    meaning[letter + ('a' - 'A')] = token;
  }
  meaning[' '] = meaning['\t'] = meaning['\r'] = kBlank;
  meaning['-'] = meaning['.'] = kGap;
  meaning['*'] = kStop;
  meaning['J'] = meaning['j'] = kUnknown;
  return meaning;
}

}  // namespace

constinit const std::array<std::uint8_t, 256> kMeaning = make_meanings();

std::string name_of(std::int64_t token) {
  constexpr std::array kSpecials = {"<pad>", "<bos>", "<eos>", "<mask>"};
  if (token >= 0 && token < kFirstLetter) return kSpecials.at(static_cast<std::size_t>(token));
  const std::int64_t letter = token - kFirstLetter;
  if (letter < 0 || letter >= static_cast<std::int64_t>(kLetters.size())) return "<?>";
  return std::string(1, kLetters[static_cast<std::size_t>(letter)]);
}

}  // namespace performer::data::alphabet
