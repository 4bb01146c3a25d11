#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "performer/data/dataset.h"
#include "performer/data/token_space.h"

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

/// Whether EOS, where it is a target at all, is one of the tokens that are guessed. Apart, it is
/// neither a choice nor a target: what is left are the letters, and the figures are those of the
/// data whatever the rows are.
enum class Ends : std::uint8_t { kApart, kCounted };

struct Baselines {
  Baseline uniform, empirical;
  std::int64_t choices = 0;  // of the uniform guess
  std::int64_t targets = 0;  // guessed of the data held out
};

/// The one definition of the baselines, for tables of the data and of a model's evaluation. `train`
/// and `held` count tokens of `space`, or its classes where it has any (no EOS there).
Baselines baselines_of(const TokenSpace& space, Ends ends, std::span<const std::int64_t> train,
                       std::span<const std::int64_t> held);

/// How often each token is a target of the dataset in evaluation: what a model is measured on. Of
/// more than `most_rows` samples, that many at even distances are counted.
std::vector<std::int64_t> count_targets(
    const Dataset& dataset, std::int64_t most_rows = std::numeric_limits<std::int64_t>::max());
/// The same of the first `rows` samples, as an evaluation that ended early has taken them.
std::vector<std::int64_t> count_first_targets(const Dataset& dataset, std::int64_t rows);

}  // namespace performer::data
