#include "performer/data/hf/open_tokenizer.h"

#include <algorithm>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/data/sentence_piece.h"

namespace performer::data {
namespace {

constexpr std::int64_t kMostModelBytes = std::int64_t{1} << 28;

std::int64_t first_of(std::int64_t id, std::int64_t otherwise) { return id >= 0 ? id : otherwise; }

std::int64_t only_one(const std::vector<std::int64_t>& ids) {
  return ids.size() == 1 ? ids.front() : -1;
}

// The longest run of tokens that are not special, which a masked token may become.
void find_regular(TokenSpace& space, const hf::Tokenizer& tokenizer) {
  std::int64_t begin = 0;
  for (std::int64_t id = 0; id <= tokenizer.vocabulary(); ++id) {
    if (id < tokenizer.vocabulary() && !tokenizer.is_special(id)) continue;
    if (id - begin > space.regular) {
      space.first_regular = begin;
      space.regular = id - begin;
    }
    begin = id + 1;
  }
}

TokenSpace piece_space(const std::filesystem::path& model) {
  TokenSpace space;
  space.kind = "sentencepiece";
  space.pieces =
      std::make_shared<const SentencePiece>(read_file(model, kMostModelBytes), model.string());
  const SentencePiece& pieces = *space.pieces;
  space.vocabulary = pieces.vocabulary();
  space.pad = pieces.pad();
  space.bos = pieces.bos();
  space.eos = pieces.eos();
  space.mask = pieces.mask();
  space.start = first_of(space.bos, space.eos);
  const auto last = std::max({space.pad, space.bos, space.eos, space.mask});
  if (last + 1 == space.vocabulary) {
    fail(ExitCode::kCorrupt, "{}: has no pieces but special ones", model.string());
  }
  space.first_regular = last + 1;
  space.regular = space.vocabulary - space.first_regular;
  return space;
}

}  // namespace

TokenSpace hf_space(hf::TokenizerFiles files) {
  auto made = hf::make_tokenizer(files);
  if (made == nullptr) fail(ExitCode::kCorrupt, "{}: holds no tokenizer", files.folder);
  const hf::Tokenizer& tokenizer = *made;
  const hf::SpecialIds& special = tokenizer.special();
  TokenSpace space;
  space.kind = "hf";
  space.vocabulary = tokenizer.vocabulary();
  space.pad = special.pad;
  space.mask = special.mask;
  space.bos = first_of(special.bos, first_of(special.cls, only_one(tokenizer.around().before)));
  space.eos = first_of(special.eos, first_of(special.sep, only_one(tokenizer.around().after)));
  space.start = first_of(space.bos, space.eos);
  find_regular(space, tokenizer);
  if (space.regular == 0) {
    fail(ExitCode::kCorrupt, "{}: has no tokens but special ones", files.folder);
  }
  space.hf = std::make_shared<const HfTokenizer>(HfTokenizer{std::move(files), std::move(made)});
  return space;
}

TokenSpace open_hf_tokenizer(const std::filesystem::path& folder) {
  auto files = hf::read_tokenizer_files(folder);
  const auto there = [&](const char* name) { return files.find(name) != nullptr; };
  if (there("tokenizer.json") || there("vocab.txt") ||
      (there("vocab.json") && there("merges.txt"))) {
    return hf_space(std::move(files));
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    if (is_there(folder / name)) return piece_space(folder / name);
  }
  fail(ExitCode::kBadInput,
       "{}: holds no tokenizer; tokenizer.json, vocab.txt, vocab.json with merges.txt, "
       "tokenizer.model or spiece.model is needed",
       folder.string());
}

}  // namespace performer::data
