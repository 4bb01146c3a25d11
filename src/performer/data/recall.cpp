#include "performer/data/recall.h"

#include <algorithm>
#include <vector>

#include "performer/data/targets.h"

namespace performer::data {
namespace {

constexpr std::int64_t kHeldOutShare = 100;

DataConfig with_exact_length(DataConfig config) {
  config.length = recall_length(config);
  return config;
}

// `count` different numbers below `bound` in random order: Floyd's choice, then a shuffle.
std::vector<std::int64_t> choose(std::int64_t count, std::int64_t bound, SampleRandom& random) {
  std::vector<std::int64_t> chosen;
  chosen.reserve(static_cast<std::size_t>(count));
  for (std::int64_t j = bound - count; j < bound; ++j) {
    const std::int64_t t = random.below(j + 1);
    const bool taken = std::ranges::find(chosen, t) != chosen.end();
    chosen.push_back(taken ? j : t);
  }
  for (std::int64_t i = count - 1; i > 0; --i) {
    std::swap(chosen[static_cast<std::size_t>(i)],
              chosen[static_cast<std::size_t>(random.below(i + 1))]);
  }
  return chosen;
}

}  // namespace

TokenSpace recall_space(const DataConfig& config) {
  TokenSpace space;
  space.kind = "recall";
  space.pad = 0;
  space.first_regular = 1;
  space.regular = config.recall_keys + config.recall_values;
  if (config.recall_form == "joint") space.regular += config.recall_keys * config.recall_values;
  space.vocabulary = space.regular + 1;
  space.start = 1;
  return space;
}

RecallDataset::RecallDataset(const DataConfig& config, const TokenSpace& space, Split split)
    : Dataset(with_exact_length(config), space),
      size_(split == Split::kTrain
                ? config.recall_samples
                : std::max<std::int64_t>(config.recall_samples / kHeldOutShare, 1)),
      split_(split) {}

RowInfo RecallDataset::fill(const SampleKey& key, const Row& row) const {
  SampleKey own = key;
  // The other splits stand outside every epoch of training.
  if (split_ != Split::kTrain) own.epoch = -static_cast<std::int64_t>(split_);
  SampleRandom random(own, Purpose::kRecall);
  if (config().recall_form == "joint") {
    fill_joint(row, random);
  } else {
    fill_separate(row, random);
  }
  return {.length = length(), .targets = config().recall_queries};
}

void RecallDataset::fill_joint(const Row& row, SampleRandom& random) const {
  const DataConfig& c = config();
  const std::int64_t first_query = 1 + c.recall_keys * c.recall_values;
  const std::int64_t first_value = first_query + c.recall_keys;
  const auto keys = choose(c.recall_pairs, c.recall_keys, random);
  std::vector<std::int64_t> values(keys.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    values[i] = random.below(c.recall_values);
    row.tokens[at++] = 1 + keys[i] * c.recall_values + values[i];
  }
  for (std::int64_t q = 0; q < c.recall_queries; ++q) {
    const auto pair = static_cast<std::size_t>(random.below(c.recall_pairs));
    row.targets[at] = first_value + values[pair];
    row.tokens[at++] = first_query + keys[pair];
  }
}

void RecallDataset::fill_separate(const Row& row, SampleRandom& random) const {
  const DataConfig& c = config();
  const auto keys = choose(c.recall_pairs, c.recall_keys, random);
  std::vector<std::int64_t> values(keys.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    values[i] = 1 + c.recall_keys + random.below(c.recall_values);
    row.tokens[at++] = 1 + keys[i];
    row.tokens[at++] = values[i];
  }
  for (std::int64_t q = 0; q < c.recall_queries; ++q) {
    const auto pair = static_cast<std::size_t>(random.below(c.recall_pairs));
    row.targets[at] = values[pair];
    row.tokens[at++] = 1 + keys[pair];
    if (at < row.tokens.size()) row.tokens[at++] = values[pair];
  }
}

}  // namespace performer::data
