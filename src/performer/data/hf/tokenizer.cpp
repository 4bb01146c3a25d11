#include "performer/data/hf/tokenizer.h"

#include <algorithm>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/encoding.h"

namespace performer::data::hf {

Tokenizer::Tokenizer(TokenizerParts parts, const std::string& place) : parts_(std::move(parts)) {
  check_added(place);
  std::vector<AddedToken> raw, normalized;
  for (const auto& [token, in_normalized] : parts_.added) {
    AddedToken found = token;
    if (in_normalized) found.text = parts_.normalizer.apply(token.text);
    added_[token.id] = found.text;
    (in_normalized ? normalized : raw).push_back(std::move(found));
  }
  raw_ = AddedTokens(std::move(raw));
  normalized_ = AddedTokens(std::move(normalized));
}

void Tokenizer::check_added(const std::string& place) {
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  special_.resize(static_cast<std::size_t>(vocabulary.size()));
  std::ranges::stable_sort(parts_.added, {}, [](const auto& d) { return d.token.id; });
  std::vector<std::string> texts;
  for (const auto& [token, normalized] : parts_.added) {
    if (token.text.empty() || static_cast<std::int64_t>(token.text.size()) > kMaxTokenBytes) {
      fail(ExitCode::kCorrupt, "{}: the added token {} has {} bytes, 1 to {} are possible", place,
           token.id, token.text.size(), kMaxTokenBytes);
    }
    const auto known = vocabulary.find(token.text);
    const auto next = static_cast<std::int64_t>(special_.size());
    if (token.id != (known >= 0 ? known : next)) {
      fail(ExitCode::kCorrupt, "{}: the added token {} has the id {}, where {} is {}", place,
           shown(token.text), token.id, known >= 0 ? "the vocabulary's" : "the next one",
           known >= 0 ? known : next);
    }
    if (known < 0) special_.push_back(false);
    special_[static_cast<std::size_t>(token.id)] = token.special;
    texts.push_back(token.text);
  }
  std::ranges::sort(texts);
  const auto twice = std::ranges::adjacent_find(texts);
  if (twice != texts.end()) {
    fail(ExitCode::kCorrupt, "{}: the added token {} occurs twice", place, shown(*twice));
  }
}

const std::string& Tokenizer::name(std::int64_t id) const {
  const auto added = added_.find(id);
  return added != added_.end() ? added->second : parts_.model->vocabulary().text(id);
}

void Tokenizer::encode_part(std::string_view part, bool at_start,
                            std::vector<std::int64_t>& ids) const {
  const std::string text = parts_.normalizer.apply(part);
  normalized_.split(text, [&](std::string_view piece, std::int64_t id, bool first) {
    if (id >= 0) return ids.push_back(id);
    parts_.pre_tokenizer.split(piece, at_start && first,
                               [&](std::string_view word) { parts_.model->encode(word, ids); });
  });
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  check_utf8_lines(text, "text");
  std::vector<std::int64_t> ids;
  raw_.split(text, [&](std::string_view part, std::int64_t id, bool at_start) {
    if (id >= 0) return ids.push_back(id);
    encode_part(part, at_start, ids);
  });
  return ids;
}

std::vector<std::int64_t> Tokenizer::encode_whole(std::string_view text) const {
  std::vector<std::int64_t> ids = encode(text);
  ids.insert(ids.begin(), parts_.around.before.begin(), parts_.around.before.end());
  ids.insert(ids.end(), parts_.around.after.begin(), parts_.around.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  std::vector<std::string> tokens;
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < vocabulary() && !is_special(id)) tokens.push_back(name(id));
  }
  return parts_.decoder.decode(std::move(tokens));
}

}  // namespace performer::data::hf
