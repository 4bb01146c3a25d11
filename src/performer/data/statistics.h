#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "performer/data/dataset.h"

namespace performer::data {

struct LengthStatistics {
  std::int64_t count = 0, total = 0, min = 0, max = 0;
  double mean = 0, std = 0, median = 0;  // std of the whole set, not of a sample
};

/// Lengths and letters of sequences, in memory of the number of different lengths.
class SequenceStatistics {
 public:
  explicit SequenceStatistics(std::int64_t vocabulary)
      : counts_(static_cast<std::size_t>(vocabulary)) {}

  void add(std::span<const std::uint8_t> tokens);

  LengthStatistics lengths() const;
  /// How often each token occurred.
  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  std::map<std::int64_t, std::int64_t> lengths_;
  std::vector<std::int64_t> counts_;
};

struct Baseline {
  double accuracy = 0;
  double perplexity = 0;
};

/// Always the same guess, token frequencies of the training data: accuracy of the most frequent
/// token, perplexity of the frequencies. A token that training lacks counts as seen once.
Baseline empirical_baseline(std::span<const std::int64_t> train,
                            std::span<const std::int64_t> held);

/// Each of `tokens` equally likely.
Baseline uniform_baseline(std::int64_t tokens);

/// How often each token is a target of the dataset in evaluation: what a model is measured on.
std::vector<std::int64_t> count_targets(const Dataset& dataset);

}  // namespace performer::data
