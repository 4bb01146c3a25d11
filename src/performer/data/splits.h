#pragma once

#include <string>
#include <unordered_map>

#include "performer/data/data_config.h"

namespace performer::data {

/// Where the rows of a split come from: a file of its own, or rows of the training file that are
/// marked (`marked`).
struct SplitPlace {
  std::string path;  // empty: nowhere
  bool marked = false;
};

/// Marked rows are looked for where no split but `train` names a file of its own.
SplitPlace place_of(const DataConfig& config, Split split);

/// id -> split of a TSV with these columns.
std::unordered_map<std::string, std::string> read_split_table(const std::string& path);

}  // namespace performer::data
