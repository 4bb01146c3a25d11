#pragma once

#include "performer/data/hf/tokenizer.h"
#include "performer/data/hf/tokenizer_config.h"
#include "performer/data/hf/tokenizer_files.h"

/// Folders without a tokenizer.json, of the tokenizers whose settings are known: as transformers
/// makes them of these files.
namespace performer::data::hf {

/// vocab.txt of BERT and those that took its tokenizer, or of ESM-2.
TokenizerParts read_vocabulary_file(const TokenizerFiles& files, const TokenizerConfig& config);

/// vocab.json and merges.txt of GPT-2 or RoBERTa.
TokenizerParts read_merges_files(const TokenizerFiles& files, const TokenizerConfig& config);

}  // namespace performer::data::hf
