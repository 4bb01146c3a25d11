#pragma once

#include <string>
#include <string_view>

/// What the tokenizers of Hugging Face folders know of Unicode, to the code point: tokens must be
/// those that a model was trained on, so this follows the package `tokenizers` (0.23), even where
/// its parts disagree. Its regular expressions know Unicode 16, its lower case is that of 17, BERT's
/// categories are those of 8, and its normal forms stem from between 9 and 12. Properties come from
/// utf8proc (15.0 in Debian 12); what differs stands in unicode_differences.h, so that all agree on
/// every code point. A newer utf8proc knows characters that are unassigned here: those alone may
/// differ.
namespace performer::data::hf {

/// The code point that begins at byte `at` of `text`, which is UTF-8; moves `at` behind it.
char32_t next_letter(std::string_view text, std::size_t& at);
/// The one that ends before `at`, which moves to its beginning.
char32_t previous_letter(std::string_view text, std::size_t& at);
void append_letter(std::string& text, char32_t letter);

/// White_Space: \s of regular expressions and is_whitespace of the rest.
bool is_space(char32_t c);

/// \p{L}, \p{N} and \p{M} of regular expressions.
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_mark(char32_t c);
/// The numbers of the pre-tokenizer `Digits`.
bool is_digit(char32_t c);
/// \w, which bounds added tokens that stand for single words.
bool is_word(char32_t c);

/// Categories as BERT's tokenizer knows them: control (and format, and private) characters,
/// accents (Mn), and punctuation, which all symbols of ASCII are too.
bool is_control(char32_t c);
bool is_accent(char32_t c);
bool is_punctuation(char32_t c);
bool is_chinese(char32_t c);

/// Letter by letter, without regard to what is around: a final sigma becomes the common one.
std::string lower_case(std::string_view text);

enum class NormalForm { kDecomposed, kComposed };  // NFD, NFC
/// In linear time whatever the order of accents is.
std::string normalized(std::string_view text, NormalForm form);

}  // namespace performer::data::hf
