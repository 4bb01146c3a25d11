#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "performer/data/content_hash.h"
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

/// Which split each id belongs to. Ids are held by their hashes: a row takes the same memory
/// whatever its id is.
class SplitTable {
 public:
  /// Of a TSV with the columns id and split. The last row of an id counts; rows of splits with
  /// other names belong to none. kBadInput above TsvReader::kMaxRows.
  explicit SplitTable(const std::string& path);

  std::optional<Split> find(std::string_view id) const;
  /// Whether any row belongs to it.
  bool contains(Split split) const;

 private:
  std::unordered_map<ContentHash, Split, ContentHashHasher> splits_;
};

}  // namespace performer::data
