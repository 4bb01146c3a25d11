#include "performer/data/whole_dataset.h"

#include <algorithm>
#include <utility>

#include "performer/data/language_row.h"
#include "performer/data/targets.h"

namespace performer::data {

WholeDataset::WholeDataset(DataConfig config, TokenSpace space,
                           std::shared_ptr<const WholeSequences> sequences)
    : Dataset(std::move(config), std::move(space)), sequences_(std::move(sequences)) {}

RowInfo WholeDataset::fill(const SampleKey& key, const Row& row) const {
  const std::int64_t usable = sequences_->tokens(key.sample) - (causal() ? 1 : 0);
  const std::int64_t count = std::min(length(), usable);
  sequences_->read(key.sample, 0, row.tokens.first(static_cast<std::size_t>(count)));
  if (!causal()) return masked_row(row, count, key, *this);
  std::int64_t next = kIgnore;
  sequences_->read(key.sample, count, {&next, 1});
  return causal_row(row, count, next);
}

}  // namespace performer::data
