#include "performer/data/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "performer/data/targets.h"

namespace performer::data {

void SequenceStatistics::add(std::span<const std::uint8_t> tokens) {
  ++lengths_[static_cast<std::int64_t>(tokens.size())];
  // Two tables by turns: equal neighbours would wait for each other.
  std::array<std::array<std::int64_t, 256>, 2> seen{};
  std::size_t i = 0;
  for (; i + 1 < tokens.size(); i += 2) {
    ++seen[0][tokens[i]];
    ++seen[1][tokens[i + 1]];
  }
  if (i < tokens.size()) ++seen[0][tokens[i]];
  const std::size_t known = std::min<std::size_t>(counts_.size(), 256);
  for (std::size_t t = 0; t < known; ++t) counts_[t] += seen[0][t] + seen[1][t];
}

LengthStatistics SequenceStatistics::lengths() const {
  LengthStatistics s;
  if (lengths_.empty()) return s;
  s.min = lengths_.begin()->first;
  s.max = lengths_.rbegin()->first;
  for (const auto& [length, times] : lengths_) {
    s.count += times;
    s.total += length * times;
  }
  s.mean = static_cast<double>(s.total) / static_cast<double>(s.count);
  double squares = 0;
  std::int64_t before = 0;
  const std::int64_t low = (s.count - 1) / 2, high = s.count / 2;
  for (const auto& [length, times] : lengths_) {
    const double off = static_cast<double>(length) - s.mean;
    squares += off * off * static_cast<double>(times);
    if (before <= low && low < before + times) s.median += 0.5 * static_cast<double>(length);
    if (before <= high && high < before + times) s.median += 0.5 * static_cast<double>(length);
    before += times;
  }
  s.std = std::sqrt(squares / static_cast<double>(s.count));
  return s;
}

Baseline empirical_baseline(std::span<const std::int64_t> train,
                            std::span<const std::int64_t> held) {
  const auto total =
      static_cast<double>(std::accumulate(train.begin(), train.end(), std::int64_t{0}));
  const auto best = static_cast<std::size_t>(std::ranges::max_element(train) - train.begin());
  double all = 0, surprise = 0;
  for (std::size_t t = 0; t < held.size(); ++t) {
    const auto times = static_cast<double>(held[t]);
    if (held[t] == 0) continue;
    const auto seen = static_cast<double>(std::max<std::int64_t>(train[t], 1));
    all += times;
    surprise -= times * std::log(seen / total);
  }
  if (all == 0) return {};
  return {static_cast<double>(held[best]) / all, std::exp(surprise / all)};
}

Baseline uniform_baseline(std::int64_t tokens) {
  return {1.0 / static_cast<double>(tokens), static_cast<double>(tokens)};
}

Baselines baselines_of(const TokenSpace& space, Ends ends, std::span<const std::int64_t> train,
                       std::span<const std::int64_t> held) {
  const bool classes = space.num_classes() > 0;
  const bool has_eos = !classes && space.eos >= 0;
  std::vector<std::int64_t> seen(train.begin(), train.end()), asked(held.begin(), held.end());
  if (has_eos && ends == Ends::kApart) {
    seen.at(static_cast<std::size_t>(space.eos)) = 0;
    asked.at(static_cast<std::size_t>(space.eos)) = 0;
  }
  // A masked model is never asked for an end.
  const auto eos = static_cast<std::size_t>(space.eos);
  const bool guessed = has_eos && (seen.at(eos) > 0 || asked.at(eos) > 0);
  Baselines result;
  result.choices = classes ? space.num_classes() : space.regular + (guessed ? 1 : 0);
  result.targets = std::accumulate(asked.begin(), asked.end(), std::int64_t{0});
  result.uniform = uniform_baseline(result.choices);
  result.empirical = empirical_baseline(seen, asked);
  return result;
}

namespace {

// Of the samples below `end`, one after each `distance`.
std::vector<std::int64_t> count_some(const Dataset& dataset, std::int64_t end,
                                     std::int64_t distance) {
  const bool classes = dataset.target() != Target::kTokens;
  const auto& space = dataset.space();
  std::vector<std::int64_t> counts(
      static_cast<std::size_t>(classes ? space.num_classes() : space.vocabulary));
  const auto length = static_cast<std::size_t>(dataset.length());
  std::vector<std::int64_t> tokens(length), targets(length), tokens_b(length);
  const auto seed = static_cast<std::uint64_t>(dataset.config().seed);
  for (std::int64_t sample = 0; sample < end; sample += distance) {
    std::ranges::fill(targets, kIgnore);
    const RowInfo info =
        dataset.fill({seed, 0, sample, Use::kEvaluation}, {tokens, targets, tokens_b});
    if (classes) {
      ++counts[static_cast<std::size_t>(info.label)];
      continue;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(info.length); ++i) {
      if (targets[i] != kIgnore) ++counts[static_cast<std::size_t>(targets[i])];
    }
  }
  return counts;
}

}  // namespace

std::vector<std::int64_t> count_targets(const Dataset& dataset, std::int64_t most_rows) {
  return count_some(dataset, dataset.size(), 1 + (dataset.size() - 1) / most_rows);
}

std::vector<std::int64_t> count_first_targets(const Dataset& dataset, std::int64_t rows) {
  return count_some(dataset, std::min(rows, dataset.size()), 1);
}

}  // namespace performer::data
