#include "performer/data/split_sources.h"

#include <algorithm>
#include <vector>

#include "performer/core/error.h"
#include "performer/data/tsv.h"

namespace performer::data {

SplitPlace place_of(const DataConfig& config, Split split) {
  const auto shared = [&](const PathList& paths) { return paths.empty() || paths == config.train; };
  const bool can_mark = config.task == "classify" || config.task == "match" ||
                        (config.task == "protein" && !config.split_table.empty());
  if (can_mark && !config.train.empty() && shared(config.valid) && shared(config.test) &&
      shared(config.ood)) {
    return {config.train, true};
  }
  return {paths_of(config, split), false};
}

std::vector<std::string> files_of(const DataConfig& config, Split split) {
  const SplitPlace place = place_of(config, split);
  if (place.paths.empty()) fail(ExitCode::kUsage, "data.{}: no file is named", name_of(split));
  return expand_paths(place.paths, config.task, name_of(place.marked ? Split::kTrain : split));
}

SplitTable::SplitTable(const std::string& path) {
  TsvReader reader(path, TsvReader::kMaxRows);
  const std::size_t id = reader.at("id"), split = reader.at("split");
  std::vector<std::string> fields;
  while (reader.next(fields)) {
    const auto hash = content_hash(fields[id]);
    if (const auto known = find_split(fields[split])) {
      splits_.insert_or_assign(hash, *known);
    } else {
      splits_.erase(hash);
    }
  }
}

std::optional<Split> SplitTable::find(std::string_view id) const {
  const auto found = splits_.find(content_hash(id));
  return found == splits_.end() ? std::nullopt : std::optional(found->second);
}

bool SplitTable::contains(Split split) const {
  return std::ranges::any_of(splits_, [&](const auto& row) { return row.second == split; });
}

}  // namespace performer::data
