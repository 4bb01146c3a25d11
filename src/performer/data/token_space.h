#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/data_config.h"

namespace performer::data {

class SentencePiece;
struct HfTokenizer;

/// What the numbers of a model mean: stored with every checkpoint, so that evaluation and
/// generation need nothing else.
struct TokenSpace {
  std::string kind = "protein";  // protein | bytes | sentencepiece | hf | pixels | recall | ids
  std::int64_t vocabulary = 0;
  std::int64_t pad = -1;  // -1: there is no such token
  std::int64_t bos = -1;
  std::int64_t eos = -1;
  std::int64_t mask = -1;
  std::int64_t start = -1;           // what generation begins with
  std::int64_t first_regular = 0;    // tokens that are no specials: first_regular, and
  std::int64_t regular = 0;          // this many; a masked token may become any of them
  std::vector<std::string> classes;  // classify and match
  std::vector<std::int64_t> shape;   // pixels: rows, columns, channels
  std::shared_ptr<const SentencePiece> pieces;
  std::shared_ptr<const HfTokenizer> hf;  // of an imported model: hf/open_tokenizer.h

  std::int64_t num_classes() const { return static_cast<std::int64_t>(classes.size()); }

  /// Without BOS and EOS. kBadInput for a letter outside the alphabet; kUsage where the kind has no
  /// written form.
  std::vector<std::int64_t> encode(std::string_view text) const;

  /// With what belongs around a text, such as [CLS] and [SEP]; for most kinds that is nothing.
  std::vector<std::int64_t> encode_whole(std::string_view text) const;

  /// Specials are left out. Pixels, recall and ids: numbers with spaces between.
  std::string decode(std::span<const std::int64_t> tokens) const;

  /// Whether a token is a part of a text, and not around it.
  bool is_regular(std::int64_t token) const;

  /// Tokens without a written form: all specials but EOS, which ends a sequence.
  std::vector<std::int64_t> never_generated() const;

  /// tokenizer.json; the SentencePiece model itself, or the files of hf, are tokenizer.model.
  nlohmann::ordered_json to_json() const;

  /// Bytes of tokenizer.model; empty for kinds without one.
  std::string model_bytes() const;

  /// kCorrupt where the two do not make a token space.
  static TokenSpace from_json(const nlohmann::ordered_json& values, std::string model_bytes = {});
};

/// The token space of a task. Reads the tokenizer, the classes of the training rows, or the size of
/// the images where the task has them.
TokenSpace make_token_space(const DataConfig& config);

TokenSpace protein_space();
TokenSpace byte_space();
/// Tokens of a tokenizer that the program does not have: written as numbers with blanks between.
TokenSpace id_space(std::int64_t vocabulary);

}  // namespace performer::data
