#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "performer/data/data_config.h"

namespace performer::data {

/// Where the rows of a split come from: files of its own, or rows of the training files that are
/// marked (`marked`).
struct SplitPlace {
  PathList paths;  // empty: nowhere
  bool marked = false;
};

/// Marked rows are looked for where no split but `train` names files of its own.
SplitPlace place_of(const DataConfig& config, Split split);

/// The files of a place, in order; kUsage where there are none.
std::vector<std::string> files_of(const DataConfig& config, Split split);

/// id -> split of a TSV with these columns.
std::unordered_map<std::string, std::string> read_split_table(const std::string& path);

}  // namespace performer::data
