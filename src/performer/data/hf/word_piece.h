#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/hf/model.h"
#include "performer/data/hf/vocabulary.h"

namespace performer::data::hf {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string continuing = "##";
  std::int64_t max_letters = 100;  // of a word; a longer one is unknown
};

/// Splits a word into the longest tokens from its beginning on; all tokens but the first begin with
/// `continuing`. A word that this cannot make is one unknown token.
class WordPiece final : public Model {
 public:
  /// kCorrupt in `place` where the vocabulary lacks the unknown token.
  WordPiece(Vocabulary vocabulary, WordPieceOptions options, const std::string& place);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override;

 private:
  bool encode_known(std::string_view word, std::vector<std::int64_t>& ids) const;

  Vocabulary vocabulary_;
  PrefixIndex continuations_;  // without `continuing` before them
  std::int64_t unknown_ = -1;
  std::int64_t max_letters_ = 0;
};

}  // namespace performer::data::hf
