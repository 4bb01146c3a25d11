#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "performer/data/dataset.h"
#include "performer/train/evaluate.h"

namespace performer::cli {

/// Scores of single sequences as a TSV file: split, sequence (its number in the data), id,
/// residues, targets, loss, perplexity, accuracy. Ids are text alone: a tab, a line feed, a
/// backslash and other control characters in one are written as \t, \n, \\ and \xNN.
class SequenceTable {
 public:
  /// kUsage where the file is there and `overwrite` is not set. Nothing is written yet.
  SequenceTable(std::string path, bool overwrite);

  /// Begins a split of `rows`, of which each row is a part of a sequence, or a sample of its own.
  void begin(const std::string& split, const data::Dataset& rows);
  void add(std::int64_t sequence, const train::RowScore& score);
  /// Sequences without a target, such as those that --max-batches leaves out, have no line.
  void end();

  /// The file appears complete, or not at all.
  void write() const;

 private:
  std::string path_, text_, split_;
  const data::Dataset* rows_ = nullptr;
  std::vector<train::RowScore> scores_;
};

/// `id` with control characters and backslashes escaped.
std::string escaped_field(const std::string& id);

}  // namespace performer::cli
