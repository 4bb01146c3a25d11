#pragma once

#include <cstdint>

#include "performer/data/dataset.h"

namespace performer::data {

/// Associative recall (synthetic): pairs of distinct keys and any values, then keys out of these,
/// whose values are asked for; the loss is on the queries alone. Attention that averages knows
/// which pairs occurred, not which one a query is about.
///
/// joint: a pair is one token; a query's target is the value's token.
///   Tokens: PAD 0, pairs (key * recall_values + value), queries, values.
/// separate: k1 v1 k2 v2 ... q1 a1 q2 a2 ...: a head must first bind each value to the key before
///   it. Tokens: PAD 0, keys, values.
class RecallDataset final : public Dataset {
 public:
  RecallDataset(const DataConfig& config, const TokenSpace& space, Split split);

  std::int64_t size() const override { return size_; }
  RowInfo fill(const SampleKey& key, const Row& row) const override;

 private:
  void fill_joint(const Row& row, SampleRandom& random) const;
  void fill_separate(const Row& row, SampleRandom& random) const;

  std::int64_t size_;
  Split split_;
};

TokenSpace recall_space(const DataConfig& config);

}  // namespace performer::data
