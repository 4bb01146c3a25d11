#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

/// The paper's protein alphabet: the 20 standard amino acids, then the five anomalous letters
/// X (any), B, U, Z, O; before them four special tokens.
namespace performer::data::alphabet {

inline constexpr std::int64_t kPad = 0;
inline constexpr std::int64_t kBos = 1;
inline constexpr std::int64_t kEos = 2;
inline constexpr std::int64_t kMask = 3;
inline constexpr std::int64_t kFirstLetter = 4;
inline constexpr std::string_view kLetters = "ACDEFGHIKLMNPQRSTVWYXBUZO";
inline constexpr std::int64_t kStandard = 20;
inline constexpr std::int64_t kVocabulary = kFirstLetter + static_cast<std::int64_t>(25);
static_assert(kLetters.size() == 25);

inline constexpr std::uint8_t kX = kFirstLetter + 20;

/// What a byte of a sequence line means: a token (below kSpecial), or one of these.
inline constexpr std::uint8_t kSpecial = 0x40;
inline constexpr std::uint8_t kBlank = 0x41;    // space, tab, carriage return: dropped
inline constexpr std::uint8_t kGap = 0x42;      // - and . of alignments: dropped
inline constexpr std::uint8_t kStop = 0x43;     // *: dropped at the end, X inside
inline constexpr std::uint8_t kUnknown = 0x44;  // J (leucine or isoleucine): X
inline constexpr std::uint8_t kInvalid = 0x80;  // text, but no amino acid
inline constexpr std::uint8_t kBinary = 0xC0;   // no text at all

/// Meaning of each byte; lower case means the same as upper case.
extern const std::array<std::uint8_t, 256> kMeaning;

/// The letter of a token; specials as <pad>, <bos>, <eos>, <mask>.
std::string name_of(std::int64_t token);

}  // namespace performer::data::alphabet
