#pragma once

#include <filesystem>

#include "performer/data/token_space.h"
#include "performer/pretrained/hf_config.h"

namespace performer::pretrained {

/// What the numbers of a converted model mean: what the tokenizer in its folder says. Without one,
/// tokens are plain numbers, with the special ones that config.json names. One that is damaged or
/// not supported is refused by name (kCorrupt).
data::TokenSpace token_space_of(const HfConfig& config, const std::filesystem::path& folder,
                                std::int64_t vocabulary);

}  // namespace performer::pretrained
