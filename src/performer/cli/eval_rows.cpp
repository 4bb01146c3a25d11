#include "performer/cli/eval_rows.h"

#include <algorithm>

#include "performer/data/whole_sequences.h"

namespace performer::cli {

std::shared_ptr<const data::Dataset> EvalRows::scored() const {
  return windows ? std::shared_ptr<const data::Dataset>(windows) : samples;
}

std::int64_t EvalRows::sequence_of(std::int64_t row) const {
  return windows ? windows->sequence_of(row) : row;
}

std::int64_t EvalRows::left_out(std::int64_t sequence, std::int64_t rows) const {
  auto end = samples->length();  // of the tokens that are held
  if (windows) {
    auto row = rows - 1;
    if (sequence < sequence_of(row)) return 0;
    const auto stride = samples->length() - overlap;
    for (; row > 0 && sequence_of(row - 1) == sequence; --row) end += stride;
  }
  // The last token of a causal model's sequence is a target alone.
  const auto inputs = samples->whole()->tokens(sequence) - (samples->causal() ? 1 : 0);
  const auto behind = std::max<std::int64_t>(inputs - end, 0);
  // A token that is left out at the end of a sequence with EOS is EOS itself.
  return behind - (samples->space().eos >= 0 && behind > 0 ? 1 : 0);
}

data::Coverage EvalRows::coverage(std::int64_t rows) const {
  if (!windows) return data::coverage(*samples, rows);
  auto c = data::coverage(*samples, sequence_of(rows - 1) + 1);
  if (c.sequences == 0) return c;
  c.left_out = left_out(c.sequences - 1, rows);
  c.cut = c.left_out > 0 ? 1 : 0;
  return c;
}

}  // namespace performer::cli
