#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace performer::data {

/// The data of a split as a recipe names them: files, folders and patterns (*, ?, [abc]).
struct PathList {
  std::vector<std::string> items;

  PathList() = default;
  PathList(std::string item) {  // an empty one: nothing
    if (!item.empty()) items.push_back(std::move(item));
  }
  PathList(const char* item) : PathList(std::string(item)) {}

  bool empty() const { return items.empty(); }
  void clear() { items.clear(); }
  bool operator==(const PathList&) const = default;
};

/// As messages name it: the items with commas between.
std::string to_string(const PathList& list);

/// Whether a file ends as those of a task do, with or without .gz.
bool is_named_as(const std::string& path, std::string_view task);

/// Whether an item is a pattern: one with *, ? or [ that is not a file's own name.
bool is_pattern(const std::string& item);

/// Whether a file has a name like the pattern.
bool matches_any(const std::string& pattern);

/// The files, in the order of the items, those of a folder or pattern sorted by name. Of a folder
/// the files that end as those of the task do; of `pixels` the folder itself, whose images are the
/// rows. kBadInput, naming `key`, where a folder or a pattern holds none; kUsage where a file comes
/// twice.
std::vector<std::string> expand_paths(const PathList& list, std::string_view task,
                                      std::string_view key);

}  // namespace performer::data
