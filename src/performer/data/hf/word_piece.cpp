#include "performer/data/hf/word_piece.h"

#include <algorithm>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::data::hf {
namespace {

// All files that are known say 100. Time for a word grows with its square where tokens are long.
constexpr std::int64_t kMostLetters = 1000;

std::int64_t letters_in(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

PrefixIndex make_continuations(const Vocabulary& vocabulary, const std::string& prefix) {
  std::vector<PrefixIndex::Entry> entries;
  for (std::int64_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    if (!text.starts_with(prefix) || text.size() == prefix.size()) continue;
    entries.push_back({text.substr(prefix.size()), static_cast<std::int32_t>(id)});
  }
  return PrefixIndex(entries);
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options, const std::string& place)
    : vocabulary_(std::move(vocabulary)),
      continuations_(make_continuations(vocabulary_, options.continuing)),
      unknown_(vocabulary_.find(options.unknown)),
      max_letters_(options.max_letters) {
  if (unknown_ < 0) {
    fail(ExitCode::kCorrupt, "{}: the unknown token {} is not in the vocabulary", place,
         shown(options.unknown));
  }
  if (max_letters_ < 1 || max_letters_ > kMostLetters) {
    fail(ExitCode::kCorrupt, "{}: max_input_chars_per_word is {}, 1 to {} are possible", place,
         max_letters_, kMostLetters);
  }
}

bool WordPiece::encode_known(std::string_view word, std::vector<std::int64_t>& ids) const {
  for (bool first = true; !word.empty(); first = false) {
    const PrefixIndex& index = first ? vocabulary_.index() : continuations_;
    const auto token = index.longest_prefix(word);
    if (token.id < 0 || token.text.empty()) return false;
    ids.push_back(token.id);
    word.remove_prefix(token.text.size());
  }
  return true;
}

void WordPiece::encode(std::string_view word, std::vector<std::int64_t>& ids) const {
  const std::size_t before = ids.size();
  if (letters_in(word) <= max_letters_ && encode_known(word, ids)) return;
  ids.resize(before);
  ids.push_back(unknown_);
}

}  // namespace performer::data::hf
