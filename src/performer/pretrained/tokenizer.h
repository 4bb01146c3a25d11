#pragma once

#include "performer/data/token_space.h"
#include "performer/pretrained/hf_config.h"

namespace performer::pretrained {

/// What the numbers of a converted model mean. Its tokenizer's files travel in the checkpoint
/// (source.h); tokens are plain numbers, with the special ones that config.json names.
data::TokenSpace token_space_of(const HfConfig& config, std::int64_t vocabulary);

}  // namespace performer::pretrained
