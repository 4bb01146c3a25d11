#pragma once

#include <string>
#include <string_view>

#include "performer/data/hf/tokenizer.h"

namespace performer::data::hf {

/// The parts of a tokenizer.json, which errors call `name`; all but the names of special tokens,
/// which other files hold. Truncation and padding are matters of a call and are passed over.
TokenizerParts read_tokenizer_json(std::string_view text, const std::string& name);

/// One of its `added_tokens`, or of the `added_tokens_decoder` of tokenizer_config.json.
DeclaredToken read_added_token(const JsonView& json, std::int64_t id);

}  // namespace performer::data::hf
