#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "performer/core/json_tree.h"
#include "performer/data/hf/merge_list.h"
#include "performer/data/hf/vocabulary.h"

namespace performer::data::hf {

/// Reads tokenizer.json, or the vocabulary alone, without a tree of the two long parts: tokens and
/// merges. What is left of the text becomes a small tree, in which they are empty.
class TokenizerEvents final : public JsonEvents {
 public:
  enum class Whole : std::uint8_t { kTokenizer, kVocabulary };
  /// `name` is what errors (kCorrupt) call the text.
  TokenizerEvents(Whole whole, std::string name) : whole_(whole), name_(std::move(name)) {}

  void null() override;
  void boolean(bool value) override;
  void integer(std::int64_t value) override;
  void large_integer(std::uint64_t value) override;
  void number(double value, const std::string& text) override;
  void string(std::string value) override;
  void start_object() override;
  void key(std::string name) override;
  void end_object() override;
  void start_array() override;
  void end_array() override;

  std::vector<NamedToken> take_tokens() { return std::move(tokens_); }
  const MergeList& merges() const { return merges_; }
  nlohmann::ordered_json take_rest() { return rest_.take(); }

 private:
  enum class Part : std::uint8_t { kRest, kTokens, kMerges, kPassedOver };

  bool at(std::string_view outer, std::string_view inner) const;
  bool begins_tokens() const;
  /// Counts a value of the rest; false where another part took it.
  bool in_rest();
  void add_merge(std::string_view left, std::string_view right);
  void add_merge_text(const std::string& text);
  [[noreturn]] void refuse_value() const;

  Whole whole_;
  std::string name_;
  Part part_ = Part::kRest;
  std::int64_t depth_ = 0;         // of open objects and lists
  std::int64_t part_depth_ = 0;    // that of the part's own
  std::vector<std::string> path_;  // the key in each open object of the rest; empty in lists
  std::vector<NamedToken> tokens_;
  std::string token_;              // the key of the value that comes
  std::vector<std::string> pair_;  // of a merge that is written as a list
  MergeList merges_;
  JsonTree rest_;
  std::int64_t rest_values_ = 0;
};

}  // namespace performer::data::hf
