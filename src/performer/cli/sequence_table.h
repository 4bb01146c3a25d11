#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "performer/cli/eval_rows.h"
#include "performer/core/file.h"
#include "performer/infer/evaluate.h"

namespace performer::cli {

/// Scores of single sequences as a TSV file: split, sequence (its number in the data), id,
/// residues, left_out (residues that were in no row), targets, loss, perplexity, accuracy. Ids are
/// text alone: a tab, a line feed, a backslash and other control characters in one are written as
/// \t, \n, \\ and \xNN.
class SequenceTable {
 public:
  /// kUsage where the file is there and `overwrite` is not set, kNoSpace where it cannot be made.
  SequenceTable(const std::string& path, bool overwrite);

  /// Begins a split of `rows`, of which each row is a part of a sequence, or a sample of its own.
  void begin(const std::string& split, const EvalRows& rows);
  void add(std::int64_t row, const infer::RowScore& score);
  /// After `scored` rows. Sequences without a target, such as those that --max-batches leaves out,
  /// have no line.
  void end(std::int64_t scored);

  /// The file appears complete, or not at all.
  void write();

 private:
  AtomicFile file_;
  std::string text_, split_;
  const EvalRows* rows_ = nullptr;
  std::vector<infer::RowScore> scores_;
};

/// `id` with control characters and backslashes escaped.
std::string escaped_field(const std::string& id);

}  // namespace performer::cli
