#include <algorithm>

#include "performer/core/error.h"
#include "performer/data/encoding.h"
#include "performer/data/hf/plain_files.h"
#include "performer/data/hf/unicode.h"
#include "performer/data/hf/word_piece.h"

namespace performer::data::hf {
namespace {

constexpr const char* kVocabularyText = "vocab.txt";

std::vector<NamedToken> read_lines(const TokenizerFiles& files) {
  const std::string place = files.place(kVocabularyText);
  std::string_view text = *files.find(kVocabularyText);
  check_utf8_lines(text, place);
  std::vector<NamedToken> tokens;
  while (!text.empty()) {
    const std::size_t feed = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, feed);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto id = static_cast<std::int64_t>(tokens.size());
    if (id == kMaxTokens) fail(ExitCode::kCorrupt, "{}: more than {} tokens", place, kMaxTokens);
    tokens.push_back({std::string(line), id});
    text.remove_prefix(std::min(feed + 1, text.size()));
  }
  return tokens;
}

std::int64_t required(const Vocabulary& vocabulary, const std::string& token,
                      const std::string& place) {
  const auto id = vocabulary.find(token);
  if (id < 0) fail(ExitCode::kCorrupt, "{}: the token {} is not in it", place, token);
  return id;
}

TokenizerParts read_bert(const TokenizerFiles& files, const TokenizerConfig& config) {
  const std::string place = files.place(kVocabularyText);
  Vocabulary vocabulary(read_lines(files), place);
  const bool lower = config.flag("do_lower_case", true);
  TokenizerParts parts;
  parts.special = special_ids(
      config,
      {{"unk_token", "[UNK]"},
       {"sep_token", "[SEP]"},
       {"pad_token", "[PAD]"},
       {"cls_token", "[CLS]"},
       {"mask_token", "[MASK]"}},
      [&](const std::string& text) { return vocabulary.find(text); }, files.folder);
  parts.around = {{required(vocabulary, config.token("cls_token", "[CLS]"), place)},
                  {required(vocabulary, config.token("sep_token", "[SEP]"), place)}};
  parts.normalizer =
      Normalizer({BertNormalizer{.clean_text = true,
                                 .handle_chinese = config.flag("tokenize_chinese_chars", true),
                                 .strip_accents = config.flag("strip_accents", lower),
                                 .lower_case = lower}});
  parts.pre_tokenizer = PreTokenizer({BertSplit{}});
  parts.decoder = Decoder({JoinPieces{}});
  parts.added = config.added_tokens();
  add_special_tokens(parts.added, config, parts.special, vocabulary);
  parts.model = std::make_unique<WordPiece>(
      std::move(vocabulary), WordPieceOptions{.unknown = config.token("unk_token", "[UNK]")},
      place);
  return parts;
}

/// ESM's tokens are all cut out of the text before it; what is left between white space is unknown.
class UnknownWords final : public Model {
 public:
  UnknownWords(Vocabulary vocabulary, std::int64_t unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view /*word*/, std::vector<std::int64_t>& ids) const override {
    ids.push_back(unknown_);
  }

 private:
  Vocabulary vocabulary_;
  std::int64_t unknown_;
};

std::string stripped(std::string_view line) {
  std::size_t begin = 0, end = line.size();
  for (std::size_t next = 0; begin < end && is_space(next_letter(line, next));) begin = next;
  for (std::size_t last = end; end > begin && is_space(previous_letter(line, last));) end = last;
  return std::string(line.substr(begin, end - begin));
}

TokenizerParts read_esm(const TokenizerFiles& files, const TokenizerConfig& config) {
  const std::string place = files.place(kVocabularyText);
  std::vector<NamedToken> tokens = read_lines(files);
  for (auto& token : tokens) token.text = stripped(token.text);
  Vocabulary vocabulary(std::move(tokens), place);
  TokenizerParts parts;
  parts.special = special_ids(
      config,
      {{"unk_token", "<unk>"},
       {"pad_token", "<pad>"},
       {"cls_token", "<cls>"},
       {"eos_token", "<eos>"},
       {"mask_token", "<mask>"}},
      [&](const std::string& text) { return vocabulary.find(text); }, files.folder);
  parts.around = {{required(vocabulary, config.token("cls_token", "<cls>"), place)},
                  {required(vocabulary, config.token("eos_token", "<eos>"), place)}};
  const auto unknown = required(vocabulary, config.token("unk_token", "<unk>"), place);
  const auto& s = parts.special;
  for (std::int64_t id = 0; id < vocabulary.size(); ++id) {
    const std::vector<std::int64_t> specials = {s.unknown, s.pad, s.cls, s.eos, s.mask};
    const bool special = std::ranges::find(specials, id) != specials.end();
    parts.added.push_back({{.text = vocabulary.text(id), .id = id, .special = special}});
  }
  parts.pre_tokenizer = PreTokenizer({SpaceSplit{.separators = true}});
  parts.decoder = Decoder({Fuse{}});  // residues stand side by side
  parts.model = std::make_unique<UnknownWords>(std::move(vocabulary), unknown);
  return parts;
}

bool looks_like_esm(const std::string& text) {
  return text.starts_with("<cls>\n") || text.find("\n<cls>\n") != std::string::npos;
}

}  // namespace

TokenizerParts read_vocabulary_file(const TokenizerFiles& files, const TokenizerConfig& config) {
  const std::string name = config.tokenizer_class();
  if (name == "EsmTokenizer" || (name.empty() && looks_like_esm(*files.find(kVocabularyText)))) {
    return read_esm(files, config);
  }
  constexpr std::string_view kLikeBert[] = {"", "BertTokenizer", "DistilBertTokenizer",
                                            "ElectraTokenizer"};
  if (std::ranges::find(kLikeBert, name) == std::end(kLikeBert)) {
    config.refuse_class("BertTokenizer, DistilBertTokenizer, ElectraTokenizer or EsmTokenizer");
  }
  return read_bert(files, config);
}

}  // namespace performer::data::hf
