#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"

namespace performer::infer {

/// Another token at a place of a sequence; places count BOS where there is one.
struct Change {
  std::int64_t place = 0, token = 0;
};

/// The rows that a model reads to score sequences: one as it is or with changes, whole or with one
/// token behind the mask. Rows without copies: they are made when they are read.
class Readings final : public data::WholeSequences {
 public:
  /// `base` and `space` must outlive it.
  Readings(const data::WholeSequences& base, const data::TokenSpace& space)
      : base_(base), space_(space) {}

  /// Numbers of rows that belong together: [begin, end).
  struct Range {
    std::int64_t begin = 0, end = 0;
  };

  /// A sequence with other tokens, for `variant` below.
  std::int64_t add_variant(std::vector<Change> changes);

  static constexpr std::int64_t kNone = -1;
  /// A sequence, or a variant of it, in one piece.
  Range add_whole(std::int64_t sequence, std::int64_t variant = kNone);
  /// The same once for each residue, which is masked then.
  Range add_each_masked(std::int64_t sequence, std::int64_t variant = kNone);
  /// The sequence with the token at `place` masked.
  std::int64_t add_masked(std::int64_t sequence, std::int64_t place);

  std::int64_t sequence(std::int64_t row) const { return at(row).sequence; }
  /// Which token is masked, or kNone; and what stands behind the mask.
  std::int64_t masked(std::int64_t row) const { return at(row).masked; }
  std::int64_t behind_mask(std::int64_t row) const;

  std::int64_t count() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t tokens(std::int64_t row) const override { return base_.tokens(sequence(row)); }
  void read(std::int64_t row, std::int64_t begin, std::span<std::int64_t> out) const override;
  std::int64_t residues(std::int64_t row) const override { return base_.residues(sequence(row)); }
  std::string id(std::int64_t row) const override { return base_.id(sequence(row)); }

  const data::WholeSequences& base() const { return base_; }

 private:
  struct Row {
    std::int64_t sequence, variant, masked;
  };
  const Row& at(std::int64_t row) const { return rows_.at(static_cast<std::size_t>(row)); }
  void add(const Row& row);
  void read_unmasked(const Row& row, std::int64_t begin, std::span<std::int64_t> out) const;

  const data::WholeSequences& base_;
  const data::TokenSpace& space_;
  std::vector<Row> rows_;
  std::vector<std::vector<Change>> variants_;
};

}  // namespace performer::infer
