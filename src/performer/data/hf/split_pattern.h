#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The regular expressions by which byte-level tokenizers split text into words, as scanners: each
/// of those known is one family with options, and takes every letter into exactly one word.
namespace performer::data::hf {

struct SplitPattern {
  enum class Numbers : std::uint8_t { kRuns, kOne, kThree };

  /// GPT-2: a space belongs to the word, number or symbols behind it, and contractions are small.
  /// Else, as in Llama 3: any letter but a line feed belongs to the word behind it, symbols take the
  /// line feeds behind them, and contractions may be large.
  bool gpt2 = true;
  Numbers numbers = Numbers::kRuns;
  bool marks = false;  // \p{M} belongs to words
};

/// Nothing where no scanner is known for the expression.
std::optional<SplitPattern> known_pattern(std::string_view expression);
/// The names of those known, for messages.
std::string known_patterns();

/// Where the word that begins at `begin`, which is inside of the text, ends.
std::size_t word_end(std::string_view text, std::size_t begin, const SplitPattern& pattern);

}  // namespace performer::data::hf
