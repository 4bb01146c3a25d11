#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/token_stream.h"

namespace performer::data {

/// Text files [.gz] as EOS, the tokens of a file, EOS, and so on. kBadInput where one is empty, all
/// together are above 2 GiB, or one is not UTF-8; bytes as tokens take any.
std::unique_ptr<TokenStream> open_text(const std::vector<std::string>& files,
                                       const TokenSpace& space);

/// Bytes, or the SentencePiece model that config.tokenizer names.
TokenSpace text_space(const DataConfig& config);

/// The leading lines of `text`, about a mebibyte of them and at least one: what is encoded at once.
std::string_view first_lines(std::string_view text);

/// Runs of characters between white space.
std::int64_t count_words(std::string_view text);

}  // namespace performer::data
