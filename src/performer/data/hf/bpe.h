#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/hf/merge_list.h"
#include "performer/data/hf/model.h"
#include "performer/data/hf/vocabulary.h"

namespace performer::data::hf {

struct BpeOptions {
  std::string unknown;         // empty: what is unknown is left out
  bool fuse_unknown = false;   // neighbours become one unknown token
  bool byte_fallback = false;  // unknown letters are written as <0xC3><0xA4>
  bool ignore_merges = false;  // a word that is a token is that token
};

/// Byte-pair encoding: letters become tokens, then of all neighbours that can be merged those of
/// the lowest rank are, the leftmost first. O(n log n) for a word of n letters.
class Bpe final : public Model {
 public:
  /// kCorrupt in `place` for merges of or into what is no token, and for merges that occur twice.
  Bpe(Vocabulary vocabulary, const MergeList& merges, const BpeOptions& options,
      const std::string& place);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override;

 private:
  struct Merge {
    std::int32_t right = -1, rank = -1, result = -1;
  };
  class Word;

  void add_merges(const MergeList& merges, const std::string& place);
  const Merge* find(std::int32_t left, std::int32_t right) const;
  std::int32_t token_of(std::string_view letter) const;
  void add_letters(std::string_view word, std::vector<std::int32_t>& tokens) const;
  bool add_bytes(std::string_view letter, std::vector<std::int32_t>& tokens) const;

  Vocabulary vocabulary_;
  std::vector<std::int32_t> first_letters_;  // tokens of the code points up to U+01FF; -1: none
  std::vector<std::int32_t> bytes_;          // of <0x00> to <0xFF>; -1: none
  std::vector<std::uint32_t> begins_;        // [V + 1]: where a left token's merges begin
  std::vector<Merge> merges_;                // of each left token in the order of the right one
  std::int32_t unknown_ = -1;
  bool has_unknown_ = false, fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace performer::data::hf
