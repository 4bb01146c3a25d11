#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace performer::data {

struct TokenizerOptions {
  std::int64_t vocabulary = 32'768;
  int threads = 1;  // the model depends on it in last digits
};

struct TokenizerResult {
  std::int64_t vocabulary = 0, bytes = 0, words = 0, tokens = 0;
};

/// Trains a SentencePiece unigram model on text files [.gz] and writes it to `output`. The model is
/// invertible: no normalisation, white space kept, unknown characters as bytes. Tokens 0 to 4 are
/// PAD, BOS, EOS, unknown and <mask>.
TokenizerResult train_tokenizer(const std::vector<std::string>& files, const std::string& output,
                                const TokenizerOptions& options);

}  // namespace performer::data
