#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "performer/data/dataset.h"

namespace performer::data {

/// Evaluation from end to end. A sequence that is longer than a row becomes windows of length()
/// tokens, each beginning with the last `overlap` tokens of the one before. These are context: they
/// were targets there and are none again, so that every target of a sequence is asked once.
class WindowDataset final : public Dataset {
 public:
  /// kUsage unless 0 <= overlap < length() and the samples of `rows` are cut from sequences.
  WindowDataset(std::shared_ptr<const Dataset> rows, std::int64_t overlap);

  std::int64_t size() const override { return first_windows_.back(); }
  RowInfo fill(const SampleKey& key, const Row& row) const override;
  double word_multiplier() const override { return rows_->word_multiplier(); }

  /// The sequence that a window is of.
  std::int64_t sequence_of(std::int64_t window) const;

 private:
  std::int64_t stride() const { return length() - overlap_; }

  std::shared_ptr<const Dataset> rows_;
  std::int64_t overlap_;
  std::vector<std::int64_t> first_windows_;  // of each sequence; then the number of all
};

/// What rows of evaluation hold of the sequences they are cut from.
struct Coverage {
  std::int64_t sequences = 0, cut = 0;      // all, and those that are longer than a row
  std::int64_t residues = 0, left_out = 0;  // all, and those behind the end of the row
  std::int64_t longest = 0;                 // residues
};

/// Of the first `rows` samples. Nothing is left out of blocks of a stream, nor of samples that are
/// not cut from sequences.
Coverage coverage(const Dataset& dataset, std::int64_t rows);

}  // namespace performer::data
