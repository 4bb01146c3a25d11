#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/hf/added_tokens.h"
#include "performer/data/hf/decoder.h"
#include "performer/data/hf/model.h"
#include "performer/data/hf/normalizer.h"
#include "performer/data/hf/pre_tokenizer.h"

namespace performer::data::hf {

/// Ids of tokens that have a meaning of their own; -1: there is no such token.
struct SpecialIds {
  std::int64_t unknown = -1, pad = -1, bos = -1, eos = -1, cls = -1, sep = -1, mask = -1;
};

/// What stands around every text: [CLS] and [SEP], <s> and </s>, ...
struct Template {
  std::vector<std::int64_t> before, after;
};

struct DeclaredToken {
  AddedToken token;
  bool normalized = false;  // looked for in the normalized text
};

/// What the files of a folder say.
struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const Model> model;
  std::vector<DeclaredToken> added;
  Template around;
  Decoder decoder;
  SpecialIds special;
};

/// A tokenizer that makes the tokens of the package `tokenizers`, id by id. Safe from many threads.
class Tokenizer {
 public:
  /// kCorrupt in `place` where the added tokens do not go on with the ids of the model's.
  Tokenizer(TokenizerParts parts, const std::string& place);

  /// Without what stands around a text. kBadInput where the text is not UTF-8.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// With it.
  std::vector<std::int64_t> encode_whole(std::string_view text) const;
  /// Special tokens, and ids that are none, are left out.
  std::string decode(std::span<const std::int64_t> ids) const;

  /// Ids are 0, 1, ... below this.
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(special_.size()); }
  /// As decoding takes it. 0 <= id < vocabulary().
  const std::string& name(std::int64_t id) const;
  bool is_special(std::int64_t id) const { return special_[static_cast<std::size_t>(id)]; }
  const SpecialIds& special() const { return parts_.special; }
  const Template& around() const { return parts_.around; }

 private:
  void check_added(const std::string& place);
  void encode_part(std::string_view part, bool at_start, std::vector<std::int64_t>& ids) const;

  TokenizerParts parts_;
  std::map<std::int64_t, std::string> added_;  // what the added tokens are called
  std::vector<bool> special_;
  AddedTokens raw_, normalized_;
};

}  // namespace performer::data::hf
