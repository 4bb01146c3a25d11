#pragma once

#include <cstdint>
#include <memory>

#include "performer/data/dataset.h"
#include "performer/data/windows.h"

namespace performer::cli {

/// The rows of a split as they are scored: samples as in training, cut off at their length, or with
/// --overlap windows over whole sequences.
struct EvalRows {
  std::shared_ptr<const data::Dataset> samples;
  std::shared_ptr<const data::WindowDataset> windows;  // with --overlap alone
  std::int64_t overlap = -1;

  std::shared_ptr<const data::Dataset> scored() const;
  std::int64_t sequence_of(std::int64_t row) const;

  /// Residues of a sequence that the first `rows` rows do not hold, though they hold its beginning.
  /// The samples must be parts of sequences.
  std::int64_t left_out(std::int64_t sequence, std::int64_t rows) const;

  /// What the first `rows` rows hold of the sequences that they reach; all 0 where samples are not
  /// cut from sequences, or are blocks of a stream.
  data::Coverage coverage(std::int64_t rows) const;
};

}  // namespace performer::cli
