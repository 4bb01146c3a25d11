#include "performer/data/data_config.h"

#include <array>
#include <string>

#include "performer/core/error.h"
#include "performer/core/nearest.h"

namespace performer::data {
namespace {

void check_recall(const DataConfig& c) {
  if (c.recall_keys < c.recall_pairs) {
    fail(ExitCode::kUsage, "data.recall_keys: must be at least data.recall_pairs ({}), got {}",
         c.recall_pairs, c.recall_keys);
  }
  const std::int64_t row = recall_length(c);
  if (c.length < row) {
    fail(ExitCode::kUsage, "data.length: {} pairs and {} queries need {} tokens, got {}",
         c.recall_pairs, c.recall_queries, row, c.length);
  }
}

}  // namespace

std::int64_t recall_length(const DataConfig& c) {
  const std::int64_t symbols = c.recall_pairs + c.recall_queries;
  return c.recall_form == "joint" ? symbols : 2 * symbols - 1;
}

void check_values(const DataConfig& c) {
  auto copy = c;
  check_ranges(list_fields(copy), "data.");
  check_choices(list_fields(copy), "data.");
  if (!(c.mask_probability > 0.0 && c.mask_probability <= 1.0)) {
    fail(ExitCode::kUsage, "data.mask_probability: must be above 0 and at most 1, got {}",
         c.mask_probability);
  }
  if (c.task == "recall") {
    check_recall(c);
    if (c.objective != "causal") {
      fail(ExitCode::kUsage, "data.objective: recall is causal, got '{}'", c.objective);
    }
  }
  if (c.join && c.task != "protein") {
    fail(ExitCode::kUsage, "data.join: only proteins can be joined, got data.task={}", c.task);
  }
}

void check(const DataConfig& c) {
  check_values(c);
  const bool none = c.train.empty() && c.valid.empty() && c.test.empty() && c.ood.empty();
  if (none && c.task != "recall") {
    fail(ExitCode::kUsage, "data.train: no data; name a file, or choose data.task=recall");
  }
}

const char* name_of(Split split) {
  constexpr std::array kNames = {"train", "valid", "test", "ood"};
  return kNames.at(static_cast<std::size_t>(split));
}

std::optional<Split> find_split(std::string_view name) {
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest, Split::kOod}) {
    if (name == name_of(split)) return split;
  }
  return std::nullopt;
}

Split split_of(const std::string& name) {
  if (const auto split = find_split(name)) return *split;
  fail(ExitCode::kUsage, "--split: must be train, valid, test or ood, got '{}'{}", name,
       did_you_mean(name, {"train", "valid", "test", "ood"}));
}

const PathList& paths_of(const DataConfig& config, Split split) {
  switch (split) {
    case Split::kValid:
      return config.valid;
    case Split::kTest:
      return config.test;
    case Split::kOod:
      return config.ood;
    case Split::kTrain:
      break;
  }
  return config.train;
}

}  // namespace performer::data
