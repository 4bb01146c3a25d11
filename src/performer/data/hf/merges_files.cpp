#include <algorithm>
#include <utility>

#include "performer/core/error.h"
#include "performer/data/encoding.h"
#include "performer/data/hf/bpe.h"
#include "performer/data/hf/plain_files.h"
#include "performer/data/hf/tokenizer_events.h"

namespace performer::data::hf {
namespace {

constexpr const char* kVocabularyFile = "vocab.json";
constexpr const char* kMergesFile = "merges.txt";

Vocabulary read_vocabulary(const TokenizerFiles& files) {
  constexpr JsonLimits kLimits{.bytes = std::int64_t{1} << 26, .values = 2 * kMaxTokens};
  const std::string place = files.place(kVocabularyFile);
  TokenizerEvents events(TokenizerEvents::Whole::kVocabulary, place);
  read_json_events(*files.find(kVocabularyFile), place, kLimits, events);
  return {events.take_tokens(), place};
}

MergeList read_merges(const TokenizerFiles& files) {
  const std::string place = files.place(kMergesFile);
  std::string_view text = *files.find(kMergesFile);
  check_utf8_lines(text, place);
  MergeList merges;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::size_t feed = std::min(text.find('\n'), text.size());
    std::string_view pair = text.substr(0, feed);
    text.remove_prefix(std::min(feed + 1, text.size()));
    if (pair.ends_with('\r')) pair.remove_suffix(1);
    if (pair.starts_with("#version")) continue;
    const std::size_t space = pair.find(' ');
    if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos) {
      fail(ExitCode::kCorrupt, "{}:{}: must be two tokens with a space between", place, line);
    }
    if (static_cast<std::int64_t>(merges.size()) == kMaxMerges) {
      fail(ExitCode::kCorrupt, "{}: more than {} merges", place, kMaxMerges);
    }
    merges.add(pair.substr(0, space), pair.substr(space + 1));
  }
  return merges;
}

using Names = std::vector<std::pair<std::string, std::string>>;

const Names kGpt2 = {
    {"unk_token", "<|endoftext|>"}, {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}};
const Names kRoberta = {{"bos_token", "<s>"},    {"eos_token", "</s>"},  {"sep_token", "</s>"},
                        {"cls_token", "<s>"},    {"unk_token", "<unk>"}, {"pad_token", "<pad>"},
                        {"mask_token", "<mask>"}};

}  // namespace

TokenizerParts read_merges_files(const TokenizerFiles& files, const TokenizerConfig& config) {
  const std::string name = config.tokenizer_class();
  const bool roberta = name == "RobertaTokenizer";
  if (!roberta && !name.empty() && name != "GPT2Tokenizer") {
    config.refuse_class("GPT2Tokenizer or RobertaTokenizer");
  }
  Vocabulary vocabulary = read_vocabulary(files);
  TokenizerParts parts;
  parts.added = config.added_tokens();
  const auto find = [&](const std::string& text) -> std::int64_t {
    for (const auto& declared : parts.added) {
      if (declared.token.text == text) return declared.token.id;
    }
    return vocabulary.find(text);
  };
  parts.special = special_ids(config, roberta ? kRoberta : kGpt2, find, files.folder);
  add_special_tokens(parts.added, config, parts.special, vocabulary);
  if (roberta) {
    if (parts.special.cls < 0 || parts.special.sep < 0) {
      fail(ExitCode::kCorrupt, "{}: has no <s> or no </s>", files.place(kVocabularyFile));
    }
    parts.around = {{parts.special.cls}, {parts.special.sep}};
  }
  parts.pre_tokenizer = PreTokenizer(
      {ByteLevel{.prefix_space = config.flag("add_prefix_space", false), .split = true}});
  parts.decoder = Decoder({FromByteLetters{}});
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), read_merges(files), BpeOptions{},
                                      files.place(kMergesFile));
  return parts;
}

}  // namespace performer::data::hf
