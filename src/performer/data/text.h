#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "performer/data/token_stream.h"

namespace performer::data {

/// A text file [.gz] as EOS, its tokens, EOS. kBadInput where it is empty or above 2 GiB.
std::unique_ptr<TokenStream> open_text(const std::string& path, const TokenSpace& space);

/// Bytes, or the SentencePiece model that config.tokenizer names.
TokenSpace text_space(const DataConfig& config);

/// Runs of characters between white space.
std::int64_t count_words(std::string_view text);

}  // namespace performer::data
