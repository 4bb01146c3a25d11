#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace performer::data::hf {

inline constexpr std::int64_t kMaxMerges = std::int64_t{1} << 21;

/// Pairs of texts to merge, the first before all others: what a file holds, in about its memory.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right) {
    text_ += left;
    ends_.push_back(text_.size());
    text_ += right;
    ends_.push_back(text_.size());
  }
  std::size_t size() const { return ends_.size() / 2; }
  std::string_view left(std::size_t i) const { return part(2 * i); }
  std::string_view right(std::size_t i) const { return part(2 * i + 1); }

 private:
  std::string_view part(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

  std::string text_;
  std::vector<std::size_t> ends_;
};

}  // namespace performer::data::hf
