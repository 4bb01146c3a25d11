#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace performer::data {

/// What rows are cut from: sequences of tokens, specials included, of any length. Reading is safe
/// from many threads.
class WholeSequences {
 public:
  virtual ~WholeSequences() = default;
  virtual std::int64_t count() const = 0;
  virtual std::int64_t tokens(std::int64_t sequence) const = 0;
  /// begin + out.size() at most tokens(sequence).
  virtual void read(std::int64_t sequence, std::int64_t begin,
                    std::span<std::int64_t> out) const = 0;

  /// Tokens that are no specials.
  virtual std::int64_t residues(std::int64_t sequence) const = 0;
  /// Of its record, as it was in the file; empty where it has none or it was not kept.
  virtual std::string id(std::int64_t sequence) const = 0;
  /// What was mended while reading, in words; empty where nothing was.
  virtual std::string notes() const { return {}; }

 protected:
  WholeSequences() = default;
  WholeSequences(const WholeSequences&) = default;
  WholeSequences& operator=(const WholeSequences&) = default;
};

}  // namespace performer::data
