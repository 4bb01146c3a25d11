#include "performer/data/splits.h"

#include <vector>

#include "performer/data/tsv.h"

namespace performer::data {

SplitPlace place_of(const DataConfig& config, Split split) {
  const auto shared = [&](const std::string& path) { return path.empty() || path == config.train; };
  const bool can_mark = config.task == "classify" || config.task == "match" ||
                        (config.task == "protein" && !config.split_table.empty());
  if (can_mark && !config.train.empty() && shared(config.valid) && shared(config.test) &&
      shared(config.ood)) {
    return {config.train, true};
  }
  return {path_of(config, split), false};
}

std::unordered_map<std::string, std::string> read_split_table(const std::string& path) {
  TsvReader reader(path);
  const std::size_t id = reader.at("id"), split = reader.at("split");
  std::unordered_map<std::string, std::string> table;
  std::vector<std::string> fields;
  while (reader.next(fields)) table.insert_or_assign(fields[id], fields[split]);
  return table;
}

}  // namespace performer::data
