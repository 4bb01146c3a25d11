#pragma once

#include <filesystem>
#include <memory>

#include "performer/data/hf/tokenizer_files.h"
#include "performer/data/token_space.h"

/// The one header for who opens folders of Hugging Face's layout.
namespace performer::data {

/// A tokenizer with the files that it was made of.
struct HfTokenizer {
  hf::TokenizerFiles files;
  std::unique_ptr<const hf::Tokenizer> tokenizer;
};

/// The tokens of the model in `folder`: what tokenizer.json says; without one, vocab.txt of BERT or
/// ESM-2, vocab.json and merges.txt of GPT-2 or RoBERTa; or else a SentencePiece model, each line of
/// a text on its own. Anything damaged or not supported is refused in one line (kCorrupt), by name
/// and with what is supported. kBadInput where the folder has none of these.
TokenSpace open_hf_tokenizer(const std::filesystem::path& folder);

/// The same of files that were read before; kCorrupt where they are none of a tokenizer.
TokenSpace hf_space(hf::TokenizerFiles files);

}  // namespace performer::data
