#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace performer::data::hf {

/// The most tokens, and the most bytes of one, that a file may have. Larger ones are refused.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxTokenBytes = 1024;

struct NamedToken {
  std::string text;
  std::int64_t id = -1;
};

/// Finds texts among many by sorting, so that no choice of texts makes it slow.
class PrefixIndex {
 public:
  struct Entry {
    std::string_view text;  // must outlive the index
    std::int32_t id = -1;
  };

  PrefixIndex() = default;
  /// Where two entries have one text, the later is taken.
  explicit PrefixIndex(std::span<const Entry> entries);

  /// The id of `text`; -1: there is none.
  std::int32_t find(std::string_view text) const;
  /// The longest entry that `text` begins with; id -1: there is none. O(log n), and a step for each
  /// entry that is a prefix of another.
  Entry longest_prefix(std::string_view text) const;
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    std::uint64_t head;  // the first 8 bytes, which decide most comparisons
    Entry entry;
    std::int32_t parent;  // the longest other entry that is a prefix of this one; -1: none
  };
  // Of the last node that is not behind `text`; -1: all are.
  std::int64_t last_up_to(std::string_view text) const;

  std::vector<Node> nodes_;  // in order of their texts
};

/// The tokens of a model: ids are 0, 1, 2, ... and texts differ.
class Vocabulary {
 public:
  /// kCorrupt in `place` for ids that are negative, occur twice or leave holes, for a text that
  /// occurs twice, and for tokens that are too long or too many.
  Vocabulary(std::vector<NamedToken> tokens, const std::string& place);
  ~Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;  // the index views the tokens where they are
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// 0 <= id < size().
  const std::string& text(std::int64_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::int32_t find(std::string_view text) const { return index_.find(text); }
  const PrefixIndex& index() const { return index_; }

 private:
  std::vector<std::string> tokens_;
  PrefixIndex index_;
};

}  // namespace performer::data::hf
