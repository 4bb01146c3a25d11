#include "performer/data/pipes.h"

#include <set>
#include <string>

#include "performer/core/error.h"
#include "performer/data/file_kind.h"
#include "performer/data/split_sources.h"

namespace performer::data {
namespace {

void refuse_pipe(const char* key, const std::string& path, const std::string& why) {
  if (path.empty() || !is_pipe(path)) return;
  fail(ExitCode::kUsage,
       "data.{}: {} is a pipe and gives its data only once, but {}; save the data to a file", key,
       path, why);
}

}  // namespace

void check_pipes(const DataConfig& config) {
  if (config.task == "recall") return;
  const bool looks_first =
      config.task == "pixels" || config.task == "classify" || config.task == "match";
  if (looks_first || place_of(config, Split::kTrain).marked) {
    for (const auto& item : config.train.items) {
      refuse_pipe("train", item, "data.task=" + config.task + " reads its data twice here");
    }
  }
  refuse_pipe("split_table", config.split_table, "it is read for each split");
  refuse_pipe("documents", config.documents, "they are read for each split");
  std::set<std::string> seen;
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest, Split::kOod}) {
    for (const auto& item : paths_of(config, split).items) {
      if (!seen.insert(item).second) refuse_pipe(name_of(split), item, "it is named twice");
    }
  }
}

}  // namespace performer::data
