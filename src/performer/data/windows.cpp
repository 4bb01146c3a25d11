#include "performer/data/windows.h"

#include <algorithm>
#include <utility>

#include "performer/core/error.h"
#include "performer/data/language_row.h"
#include "performer/data/targets.h"
#include "performer/data/whole_sequences.h"

namespace performer::data {
namespace {

const Dataset& checked(const Dataset& rows, std::int64_t overlap) {
  if (rows.whole() == nullptr) {
    fail(ExitCode::kUsage, "--overlap: rows of data.task = {} are whole and have no windows",
         rows.config().task);
  }
  if (overlap < 0 || overlap >= rows.length()) {
    fail(ExitCode::kUsage, "--overlap: must be at least 0 and below the rows' length {}, got {}",
         rows.length(), overlap);
  }
  return rows;
}

// Tokens of a sequence that a model reads: of a causal one the last is target alone.
std::int64_t inputs_of(const Dataset& rows, std::int64_t sequence) {
  return rows.whole()->tokens(sequence) - (rows.causal() ? 1 : 0);
}

}  // namespace

WindowDataset::WindowDataset(std::shared_ptr<const Dataset> rows, std::int64_t overlap)
    : Dataset(checked(*rows, overlap).config(), rows->space()),
      rows_(std::move(rows)),
      overlap_(overlap) {
  const auto count = rows_->whole()->count();
  first_windows_.reserve(static_cast<std::size_t>(count) + 1);
  first_windows_.push_back(0);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto behind = std::max<std::int64_t>(inputs_of(*rows_, i) - length(), 0);
    first_windows_.push_back(first_windows_.back() + 1 + (behind + stride() - 1) / stride());
  }
}

std::int64_t WindowDataset::sequence_of(std::int64_t window) const {
  return std::ranges::upper_bound(first_windows_, window) - first_windows_.begin() - 1;
}

RowInfo WindowDataset::fill(const SampleKey& key, const Row& row) const {
  const auto sequence = sequence_of(key.sample);
  const auto number = key.sample - first_windows_[static_cast<std::size_t>(sequence)];
  const auto begin = number * stride();
  const auto count = std::min(length(), inputs_of(*rows_, sequence) - begin);
  const auto& whole = *rows_->whole();
  whole.read(sequence, begin, row.tokens.first(static_cast<std::size_t>(count)));
  RowInfo info;
  if (causal()) {
    std::int64_t next = kIgnore;
    whole.read(sequence, begin + count, {&next, 1});
    info = causal_row(row, count, next);
  } else {
    info = masked_row(row, count, key, *this);
  }
  const auto known = number == 0 ? 0 : std::min(overlap_, count);
  for (auto& target : row.targets.first(static_cast<std::size_t>(known))) {
    info.targets -= target == kIgnore ? 0 : 1;
    target = kIgnore;
  }
  return info;
}

Coverage coverage(const Dataset& dataset, std::int64_t rows) {
  Coverage c;
  const auto* whole = dataset.whole();
  if (whole == nullptr || whole->count() != dataset.size()) return c;
  c.sequences = std::min(rows, whole->count());
  for (std::int64_t i = 0; i < c.sequences; ++i) {
    const auto residues = whole->residues(i);
    const auto behind = std::max<std::int64_t>(inputs_of(dataset, i) - dataset.length(), 0);
    // A token that is left out at the end of a sequence with EOS is EOS itself.
    const auto end = dataset.space().eos >= 0 && behind > 0 ? 1 : 0;
    c.residues += residues;
    c.left_out += behind - end;
    c.cut += behind - end > 0 ? 1 : 0;
    c.longest = std::max(c.longest, residues);
  }
  return c;
}

}  // namespace performer::data
