#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"
#include "performer/models/transformer.h"

namespace performer::fit {

/// Short rows of a text for fitting features: windows at random places, of random length up to
/// `length` tokens, between BOS and EOS where the token space has them. Lines of text are joined,
/// proteins are not. A batch is a function of (seed, number).
class Samples {
 public:
  struct Options {
    std::int64_t length = 192;
    std::uint64_t seed = 0;
  };

  /// kBadInput where the text has fewer than two tokens.
  Samples(const data::WholeSequences& text, const data::TokenSpace& space, const Options& options);

  /// Tokens [rows, longest], padded at the end, with their mask.
  models::ModelInput batch(std::int64_t number, std::int64_t rows, at::Device device) const;

  /// SHA-256 of what batches are taken from.
  std::string content_hash() const;

  std::int64_t tokens() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  struct Window {
    std::int64_t begin, length;
  };
  Window window(std::int64_t number, std::int64_t row) const;

  data::TokenSpace space_;
  Options options_;
  std::int64_t specials_;
  std::vector<std::int64_t> tokens_, ends_;  // of pieces that no window leaves
};

}  // namespace performer::fit
