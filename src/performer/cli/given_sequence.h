#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"

namespace performer::cli {

/// One sequence that was given on the command line, framed as those of a file are.
class GivenSequence final : public data::WholeSequences {
 public:
  GivenSequence(std::string_view text, const data::TokenSpace& space)
      : tokens_(space.encode_whole(text)) {
    if (space.kind != "hf" && space.bos >= 0) tokens_.insert(tokens_.begin(), space.bos);
    if (space.kind != "hf" && space.eos >= 0) tokens_.push_back(space.eos);
    residues_ = std::ranges::count_if(tokens_, [&](auto token) { return space.is_regular(token); });
  }

  std::int64_t count() const override { return 1; }
  std::int64_t tokens(std::int64_t /*sequence*/) const override { return std::ssize(tokens_); }
  void read(std::int64_t /*sequence*/, std::int64_t begin,
            std::span<std::int64_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }
  std::int64_t residues(std::int64_t /*sequence*/) const override { return residues_; }
  std::string id(std::int64_t /*sequence*/) const override { return "sequence"; }

 private:
  std::vector<std::int64_t> tokens_;
  std::int64_t residues_ = 0;
};

}  // namespace performer::cli
