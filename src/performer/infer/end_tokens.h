#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "performer/data/token_space.h"

namespace performer::infer {

/// Tokens that end what a model generates: EOS, and of a converted model all that its folder named
/// as eos_token_id, in generation_config.json or else in config.json. `files`: those of the
/// checkpoint in `folder`. kCorrupt where that is neither a token nor a list of tokens; ids beyond
/// the vocabulary end nothing.
std::vector<std::int64_t> end_tokens(const std::map<std::string, std::string>& files,
                                     const data::TokenSpace& space, const std::string& folder);

}  // namespace performer::infer
