#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "performer/data/hf/vocabulary.h"

namespace performer::data::hf {

/// A token that is cut out of texts before a model sees them.
struct AddedToken {
  std::string text;  // as it stands in texts, normalized if that is what it is looked for in
  std::int64_t id = -1;
  bool special = false;      // left out of decoded text
  bool single_word = false;  // only between what \w does not match
  bool strip_left = false;   // takes the white space before it
  bool strip_right = false;
};

/// Cuts a text at added tokens: at the leftmost one, and of those that begin there the longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);
  ~AddedTokens() = default;
  AddedTokens(AddedTokens&&) = default;  // the index views the tokens where they are
  AddedTokens& operator=(AddedTokens&&) = default;
  AddedTokens(const AddedTokens&) = delete;
  AddedTokens& operator=(const AddedTokens&) = delete;

  /// Called with the parts of a text in their order: id -1 for a part between tokens.
  using Take = std::function<void(std::string_view part, std::int64_t id, bool at_start)>;
  void split(std::string_view text, const Take& take) const;

 private:
  std::vector<AddedToken> tokens_;
  PrefixIndex index_;                                  // of numbers in tokens_
  std::vector<bool> begins_ = std::vector<bool>(256);  // bytes that a token begins with
};

}  // namespace performer::data::hf
