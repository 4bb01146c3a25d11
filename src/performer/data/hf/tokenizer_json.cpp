#include "performer/data/hf/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/data/hf/bpe.h"
#include "performer/data/hf/json_fields.h"
#include "performer/data/hf/step_json.h"
#include "performer/data/hf/tokenizer_events.h"
#include "performer/data/hf/word_piece.h"

namespace performer::data::hf {
namespace {

constexpr JsonLimits kTokenizerLimits{.bytes = std::int64_t{1} << 26,
                                      .values = std::int64_t{1} << 23};

std::unique_ptr<const Model> read_word_piece(const JsonView& json, Vocabulary vocabulary,
                                             const std::string& name) {
  WordPieceOptions options{.unknown = text_of(json, "unk_token", "[UNK]"),
                           .continuing = text_of(json, "continuing_subword_prefix", "##")};
  if (has(json, "max_input_chars_per_word")) {
    options.max_letters = json.at("max_input_chars_per_word").integer();
  }
  return std::make_unique<WordPiece>(std::move(vocabulary), std::move(options), name);
}

std::unique_ptr<const Model> read_bpe(const JsonView& json, Vocabulary vocabulary,
                                      const MergeList& merges, const std::string& name) {
  for (const auto* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_of(json, affix, "").empty()) json.at(affix).refuse("empty (no other is supported)");
  }
  if (has(json, "dropout") && json.at("dropout").number() != 0) {
    json.at("dropout").refuse("0 or null (random tokens are not supported)");
  }
  const BpeOptions options{.unknown = text_of(json, "unk_token", ""),
                           .fuse_unknown = flag_of(json, "fuse_unk", false),
                           .byte_fallback = flag_of(json, "byte_fallback", false),
                           .ignore_merges = flag_of(json, "ignore_merges", false)};
  return std::make_unique<Bpe>(std::move(vocabulary), merges, options, name);
}

// Old files leave the type out.
std::string type_of(const JsonView& model) {
  if (has(model, "type")) return model.at("type").string();
  return model.contains("merges") ? "BPE" : "WordPiece";
}

std::unique_ptr<const Model> read_model(const JsonView& json, TokenizerEvents& events,
                                        const std::string& name) {
  const std::string type = type_of(json);
  if (type != "WordPiece" && type != "BPE") {
    json.at("type").refuse("WordPiece or BPE (no other is supported)");
  }
  if (!json.at("vocab").value().is_object()) json.at("vocab").refuse("an object");
  Vocabulary vocabulary(events.take_tokens(), name);
  if (type == "WordPiece") return read_word_piece(json, std::move(vocabulary), name);
  json.at("merges").size();
  return read_bpe(json, std::move(vocabulary), events.merges(), name);
}

std::vector<DeclaredToken> read_added_tokens(const JsonView& list) {
  std::vector<DeclaredToken> tokens;
  for (std::size_t i = 0; i < list.size(); ++i) {
    tokens.push_back(read_added_token(list.at(i), list.at(i).at("id").integer(0)));
  }
  return tokens;
}

template <class Read>
auto read_part(const JsonView& json, std::string_view key, const Read& read) {
  static const nlohmann::ordered_json kNull;
  return read(json.contains(key) ? json.at(key) : JsonView(kNull, ""));
}

}  // namespace

DeclaredToken read_added_token(const JsonView& json, std::int64_t id) {
  const bool special = flag_of(json, "special", false);
  return {.token = {.text = json.at("content").string(),
                    .id = id,
                    .special = special,
                    .single_word = flag_of(json, "single_word", false),
                    .strip_left = flag_of(json, "lstrip", false),
                    .strip_right = flag_of(json, "rstrip", false)},
          .normalized = flag_of(json, "normalized", !special)};
}

TokenizerParts read_tokenizer_json(std::string_view text, const std::string& name) {
  TokenizerEvents events(TokenizerEvents::Whole::kTokenizer, name);
  read_json_events(text, name, kTokenizerLimits, events);
  const nlohmann::ordered_json tree = events.take_rest();
  const JsonView json(tree, name);
  if (has(json, "version") && json.at("version").string() != "1.0") {
    json.at("version").refuse("1.0");
  }
  TokenizerParts parts;
  parts.model = read_model(json.at("model"), events, name);
  parts.normalizer = read_part(json, "normalizer", read_normalizer);
  parts.pre_tokenizer = read_part(json, "pre_tokenizer", read_pre_tokenizer);
  parts.around = read_part(json, "post_processor", read_template);
  parts.decoder = read_part(json, "decoder", read_decoder);
  if (has(json, "added_tokens")) parts.added = read_added_tokens(json.at("added_tokens"));
  return parts;
}

}  // namespace performer::data::hf
