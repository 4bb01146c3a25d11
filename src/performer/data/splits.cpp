#include "performer/data/splits.h"

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

std::unordered_map<std::string, std::string> read_split_table(const std::string& path) {
  TsvReader reader(path, TsvReader::kMaxIds);
  const std::size_t id = reader.at("id"), split = reader.at("split");
  std::unordered_map<std::string, std::string> table;
  std::vector<std::string> fields;
  while (reader.next(fields)) table.insert_or_assign(fields[id], fields[split]);
  return table;
}

}  // namespace performer::data
