#include "performer/data/hf/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/hf/unicode.h"

namespace performer::data::hf {
namespace {

constexpr char32_t kFirstLetters = 0x200;
constexpr std::size_t kByteCount = 256;

std::vector<std::int32_t> find_first_letters(const Vocabulary& vocabulary) {
  std::vector<std::int32_t> tokens(kFirstLetters);
  for (char32_t c = 0; c < kFirstLetters; ++c) {
    std::string letter;
    append_letter(letter, c);
    tokens[c] = vocabulary.find(letter);
  }
  return tokens;
}

std::vector<std::int32_t> find_bytes(const Vocabulary& vocabulary) {
  std::vector<std::int32_t> tokens(kByteCount);
  for (std::size_t byte = 0; byte < kByteCount; ++byte) {
    tokens[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
  }
  return tokens;
}

}  // namespace

/// The tokens of a word as a list in which neighbours merge.
class Bpe::Word {
 public:
  Word(const Bpe& bpe, const std::vector<std::int32_t>& tokens) : bpe_(bpe) {
    const auto count = static_cast<std::int32_t>(tokens.size());
    parts_.reserve(tokens.size());
    for (std::int32_t i = 0; i < count; ++i) {
      parts_.push_back({tokens[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
    }
    std::vector<Candidate> candidates;
    for (std::int32_t i = 0; i + 1 < count; ++i) {
      if (const Merge* merge = merge_at(i)) candidates.push_back({merge->rank, i, merge->result});
    }
    queue_ = Queue({}, std::move(candidates));
  }

  void merge_all() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const Merge* merge = merge_at(top.at);
      // What stood there when this was found may have merged since. Like the package, a pair that
      // makes the same token merges now, whatever its own rank is.
      if (merge != nullptr && merge->result == top.result) merge_pair(top);
    }
  }

  void add_to(std::vector<std::int64_t>& ids) const {
    for (std::int32_t at = parts_.empty() ? -1 : 0; at >= 0; at = part(at).next) {
      ids.push_back(part(at).token);
    }
  }

 private:
  struct Part {
    std::int32_t token, previous, next;  // token -1: gone into the part before
  };
  struct Candidate {
    std::int32_t rank, at, result;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  using Queue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

  const Part& part(std::int32_t at) const { return parts_[static_cast<std::size_t>(at)]; }
  Part& part(std::int32_t at) { return parts_[static_cast<std::size_t>(at)]; }

  const Merge* merge_at(std::int32_t at) const {
    const Part& left = part(at);
    if (left.token < 0 || left.next < 0) return nullptr;
    return bpe_.find(left.token, part(left.next).token);
  }

  void propose(std::int32_t at) {
    if (at < 0) return;
    if (const Merge* merge = merge_at(at)) queue_.push({merge->rank, at, merge->result});
  }

  void merge_pair(const Candidate& top) {
    Part& left = part(top.at);
    Part& right = part(left.next);
    left.token = top.result;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) part(left.next).previous = top.at;
    propose(left.previous);
    propose(top.at);
  }

  const Bpe& bpe_;
  std::vector<Part> parts_;
  Queue queue_;
};

Bpe::Bpe(Vocabulary vocabulary, const MergeList& merges, const BpeOptions& options,
         const std::string& place)
    : vocabulary_(std::move(vocabulary)),
      first_letters_(find_first_letters(vocabulary_)),
      bytes_(find_bytes(vocabulary_)),
      has_unknown_(!options.unknown.empty()),
      fuse_unknown_(options.fuse_unknown),
      byte_fallback_(options.byte_fallback),
      ignore_merges_(options.ignore_merges) {
  if (has_unknown_) {
    unknown_ = vocabulary_.find(options.unknown);
    if (unknown_ < 0) {
      fail(ExitCode::kCorrupt, "{}: the unknown token {} is not in the vocabulary", place,
           shown(options.unknown));
    }
  }
  add_merges(merges, place);
}

void Bpe::add_merges(const MergeList& merges, const std::string& place) {
  struct Pair {
    std::int32_t left;
    Merge merge;
  };
  std::vector<Pair> pairs(merges.size());
  std::string joined;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto token = [&](std::string_view text) {
      const auto id = text.empty() ? -1 : vocabulary_.find(text);
      if (id >= 0) return id;
      fail(ExitCode::kCorrupt, "{}: merge {} of {} and {} needs the token {}, which is not there",
           place, i + 1, shown(merges.left(i)), shown(merges.right(i)), shown(text));
    };
    joined = merges.left(i);
    joined += merges.right(i);
    pairs[i] = {token(merges.left(i)),
                {token(merges.right(i)), static_cast<std::int32_t>(i), token(joined)}};
  }
  const auto key = [](const Pair& pair) { return std::pair(pair.left, pair.merge.right); };
  std::ranges::sort(pairs, {}, key);
  const auto twice = std::ranges::adjacent_find(pairs, {}, key);
  if (twice != pairs.end()) {
    fail(ExitCode::kCorrupt, "{}: the merge of {} and {} occurs twice", place,
         shown(vocabulary_.text(twice->left)), shown(vocabulary_.text(twice->merge.right)));
  }
  begins_.assign(static_cast<std::size_t>(vocabulary_.size()) + 1, 0);
  merges_.reserve(pairs.size());
  for (const auto& [left, merge] : pairs) {
    ++begins_[static_cast<std::size_t>(left) + 1];
    merges_.push_back(merge);
  }
  for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
}

const Bpe::Merge* Bpe::find(std::int32_t left, std::int32_t right) const {
  const auto at = static_cast<std::size_t>(left);
  const Merge* begin = merges_.data() + begins_[at];
  const Merge* end = merges_.data() + begins_[at + 1];
  const Merge* found =
      std::partition_point(begin, end, [&](const Merge& merge) { return merge.right < right; });
  return found != end && found->right == right ? found : nullptr;
}

std::int32_t Bpe::token_of(std::string_view letter) const {
  if (letter.size() > 2) return vocabulary_.find(letter);
  std::size_t at = 0;
  const char32_t c = next_letter(letter, at);
  return c < kFirstLetters ? first_letters_[c] : vocabulary_.find(letter);
}

bool Bpe::add_bytes(std::string_view letter, std::vector<std::int32_t>& tokens) const {
  const auto token = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
  if (std::ranges::any_of(letter, [&](char c) { return token(c) < 0; })) return false;
  for (const char c : letter) tokens.push_back(token(c));
  return true;
}

void Bpe::add_letters(std::string_view word, std::vector<std::int32_t>& tokens) const {
  // An unknown token waits for those that it may fuse with. Bytes pass by it, as in the package.
  bool waiting = false;
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t begin = i;
    next_letter(word, i);
    const auto letter = word.substr(begin, i - begin);
    if (const auto token = token_of(letter); token >= 0) {
      if (std::exchange(waiting, false)) tokens.push_back(unknown_);
      tokens.push_back(token);
      continue;
    }
    if ((byte_fallback_ && add_bytes(letter, tokens)) || !has_unknown_) continue;
    if (waiting && !fuse_unknown_) tokens.push_back(unknown_);
    waiting = true;
  }
  if (waiting) tokens.push_back(unknown_);
}

void Bpe::encode(std::string_view word, std::vector<std::int64_t>& ids) const {
  if (ignore_merges_) {
    if (const auto token = vocabulary_.find(word); token >= 0) {
      ids.push_back(token);
      return;
    }
  }
  std::vector<std::int32_t> tokens;
  add_letters(word, tokens);
  Word parts(*this, tokens);
  parts.merge_all();
  parts.add_to(ids);
}

}  // namespace performer::data::hf
