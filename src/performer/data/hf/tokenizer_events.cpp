#include "performer/data/hf/tokenizer_events.h"

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::data::hf {
namespace {

constexpr std::int64_t kMostOtherValues = std::int64_t{1} << 18;  // 32,000 added tokens

}  // namespace

bool TokenizerEvents::at(std::string_view outer, std::string_view inner) const {
  return whole_ == Whole::kTokenizer && path_.size() == 2 && path_[0] == outer && path_[1] == inner;
}

bool TokenizerEvents::begins_tokens() const {
  return whole_ == Whole::kVocabulary ? depth_ == 0 : at("model", "vocab");
}

void TokenizerEvents::refuse_value() const {
  if (part_ == Part::kTokens) {
    fail(ExitCode::kCorrupt, "{}: the id of the token {} must be a whole number", name_,
         shown(token_));
  }
  fail(ExitCode::kCorrupt, "{}: merge {} must be a pair of tokens, as \"a b\" or [\"a\", \"b\"]",
       name_, merges_.size() + 1);
}

bool TokenizerEvents::in_rest() {
  if (part_ == Part::kPassedOver) return false;
  if (part_ != Part::kRest) refuse_value();
  if (++rest_values_ > kMostOtherValues) {
    fail(ExitCode::kCorrupt, "{}: more than {} values beside the vocabulary and the merges", name_,
         kMostOtherValues);
  }
  return true;
}

void TokenizerEvents::null() {
  if (in_rest()) rest_.null();
}

void TokenizerEvents::boolean(bool value) {
  if (in_rest()) rest_.boolean(value);
}

void TokenizerEvents::large_integer(std::uint64_t value) {
  if (part_ == Part::kTokens) {
    fail(ExitCode::kCorrupt, "{}: the id of the token {} is {}, which is too large", name_,
         shown(token_), value);
  }
  if (in_rest()) rest_.large_integer(value);
}

void TokenizerEvents::number(double value, const std::string& text) {
  if (in_rest()) rest_.number(value, text);
}

void TokenizerEvents::integer(std::int64_t value) {
  if (part_ != Part::kTokens) {
    if (in_rest()) rest_.integer(value);
    return;
  }
  if (static_cast<std::int64_t>(tokens_.size()) == kMaxTokens) {
    fail(ExitCode::kCorrupt, "{}: more than {} tokens", name_, kMaxTokens);
  }
  tokens_.push_back({std::move(token_), value});
}

void TokenizerEvents::string(std::string value) {
  if (part_ != Part::kMerges) {
    if (in_rest()) rest_.string(std::move(value));
  } else if (depth_ == part_depth_) {
    add_merge_text(value);
  } else {
    if (pair_.size() == 2) refuse_value();
    pair_.push_back(std::move(value));
  }
}

void TokenizerEvents::start_object() {
  if (part_ == Part::kRest && begins_tokens()) {
    part_ = Part::kTokens;
    part_depth_ = depth_ + 1;
    rest_.start_object();
  } else if (in_rest()) {
    rest_.start_object();
    path_.emplace_back();
  }
  ++depth_;
}

void TokenizerEvents::key(std::string name) {
  if (part_ == Part::kTokens) {
    token_ = std::move(name);
  } else if (part_ == Part::kRest) {
    path_.back() = name;
    rest_.key(std::move(name));
  }
}

void TokenizerEvents::end_object() {
  --depth_;
  if (part_ == Part::kPassedOver) return;
  rest_.end_object();
  if (part_ == Part::kRest) {
    path_.pop_back();
  } else {
    part_ = Part::kRest;
  }
}

void TokenizerEvents::start_array() {
  ++depth_;
  if (part_ == Part::kMerges && depth_ == part_depth_ + 1) return;  // a merge
  const bool merges = part_ == Part::kRest && at("model", "merges");
  if (merges || (part_ == Part::kRest && at("model", "vocab"))) {
    // A vocabulary that is a list belongs to a model that is refused by its name.
    part_ = merges ? Part::kMerges : Part::kPassedOver;
    part_depth_ = depth_;
    rest_.start_array();
  } else if (in_rest()) {
    rest_.start_array();
    path_.emplace_back();
  }
}

void TokenizerEvents::end_array() {
  --depth_;
  if (part_ == Part::kRest) {
    rest_.end_array();
    path_.pop_back();
    return;
  }
  if (depth_ + 1 == part_depth_) {
    part_ = Part::kRest;
    rest_.end_array();
  } else if (part_ == Part::kMerges) {
    if (pair_.size() != 2) refuse_value();
    add_merge(pair_[0], pair_[1]);
    pair_.clear();
  }
}

void TokenizerEvents::add_merge(std::string_view left, std::string_view right) {
  if (static_cast<std::int64_t>(merges_.size()) == kMaxMerges) {
    fail(ExitCode::kCorrupt, "{}: more than {} merges", name_, kMaxMerges);
  }
  merges_.add(left, right);
}

void TokenizerEvents::add_merge_text(const std::string& text) {
  const auto space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse_value();
  add_merge(std::string_view(text).substr(0, space), std::string_view(text).substr(space + 1));
}

}  // namespace performer::data::hf
