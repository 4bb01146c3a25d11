#include "performer/data/hf/added_tokens.h"

#include <algorithm>
#include <utility>

#include "performer/data/hf/unicode.h"

namespace performer::data::hf {
namespace {

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0) {
    std::size_t at = begin;
    if (is_word(previous_letter(text, at))) return false;
  }
  return end == text.size() || !is_word(next_letter(text, end));
}

// `begin` without the white space before it, but not before `least`.
std::size_t stripped_left(std::string_view text, std::size_t begin, std::size_t least) {
  while (begin > least) {
    std::size_t at = begin;
    if (!is_space(previous_letter(text, at))) break;
    begin = at;
  }
  return std::max(begin, least);
}

/// Where white space ends. Tokens of white space ask from within one run again and again.
class RunOfSpace {
 public:
  explicit RunOfSpace(std::string_view text) : text_(text) {}

  std::size_t end(std::size_t at) {
    if (at >= begin_ && at < end_) return end_;
    begin_ = at;
    for (end_ = at; at < text_.size(); end_ = at) {
      if (!is_space(next_letter(text_, at))) break;
    }
    return end_;
  }

 private:
  std::string_view text_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<PrefixIndex::Entry> entries;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].text.empty()) continue;
    entries.push_back({tokens_[i].text, static_cast<std::int32_t>(i)});
    begins_[static_cast<unsigned char>(tokens_[i].text.front())] = true;
  }
  index_ = PrefixIndex(entries);
}

void AddedTokens::split(std::string_view text, const Take& take) const {
  std::size_t done = 0;
  RunOfSpace space(text);
  for (std::size_t i = 0; i < text.size();) {
    if (index_.empty()) break;
    const bool possible = begins_[static_cast<unsigned char>(text[i])];
    const auto found = possible ? index_.longest_prefix(text.substr(i)) : PrefixIndex::Entry{};
    if (found.id < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found.id)];
    std::size_t begin = i, end = i + token.text.size();
    i = end;
    if (token.single_word && !is_single_word(text, begin, end)) continue;
    if (token.strip_left) begin = stripped_left(text, begin, done);
    if (token.strip_right) end = space.end(end);
    if (done < begin) take(text.substr(done, begin - done), -1, done == 0);
    take(text.substr(begin, end - begin), token.id, false);
    done = end;
  }
  if (done < text.size()) take(text.substr(done), -1, done == 0);
}

}  // namespace performer::data::hf
