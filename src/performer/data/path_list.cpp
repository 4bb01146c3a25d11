#include "performer/data/path_list.h"

#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <new>
#include <set>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/file_kind.h"

namespace performer::data {
namespace {

namespace fs = std::filesystem;

using Paths = std::vector<std::string>;

std::vector<std::string_view> endings_of(std::string_view task) {
  if (task == "protein") return {".fasta", ".fa", ".faa", ".fas", ".pep", ".pds"};
  if (task == "text") return {".txt"};
  return {".tsv"};
}

bool ends_as(std::string_view name, const std::vector<std::string_view>& endings) {
  if (name.ends_with(".gz")) name.remove_suffix(3);
  return !name.starts_with('.') &&
         std::ranges::any_of(endings, [&](auto ending) { return name.ends_with(ending); });
}

Paths files_in(const std::string& folder, std::string_view task, std::string_view key) {
  const auto endings = endings_of(task);
  Paths files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown) && ends_as(entry->path().filename().string(), endings)) {
      files.push_back((fs::path(folder) / entry->path().filename()).string());
    }
  }
  if (error) {
    fail(ExitCode::kBadInput, "data.{}: {}: the folder cannot be read: {}", key, folder,
         error.message());
  }
  if (files.empty()) {
    fail(ExitCode::kBadInput,
         "data.{}: {}: the folder holds no file that ends in {} (or .gz behind)", key, folder,
         fmt::join(endings, ", "));
  }
  std::ranges::sort(files);
  return files;
}

// Sorted by bytes: the same order whatever the machine's language is. Pipes and devices are left
// out, as those of a folder are: they can be read once, and would be waited for.
Paths files_like(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, decltype(&::globfree)> release(&found, &::globfree);
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (status == GLOB_NOSPACE) throw std::bad_alloc();
  if (status != 0) return {};
  Paths files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  std::erase_if(files, is_pipe);
  std::ranges::sort(files);
  return files;
}

Paths files_of(const std::string& item, std::string_view key) {
  if (item.empty()) {
    fail(ExitCode::kUsage, "data.{}: an empty name; name a file, a folder or a pattern", key);
  }
  if (!is_pattern(item)) return {item};
  Paths files = files_like(item);
  if (files.empty()) fail(ExitCode::kBadInput, "data.{}: no file matches {}", key, shown(item));
  return files;
}

}  // namespace

bool is_named_as(const std::string& path, std::string_view task) {
  return ends_as(fs::path(path).filename().string(), endings_of(task));
}

std::string to_string(const PathList& list) {
  return fmt::format("{}", fmt::join(list.items, ", "));
}

bool is_pattern(const std::string& item) {
  std::error_code unknown;
  return item.find_first_of("*?[") != item.npos && !fs::exists(item, unknown);
}

bool matches_any(const std::string& pattern) { return !files_like(pattern).empty(); }

std::vector<std::string> expand_paths(const PathList& list, std::string_view task,
                                      std::string_view key) {
  Paths files;
  for (const auto& item : list.items) {
    for (const auto& path : files_of(item, key)) {
      std::error_code unknown;
      const bool folder = task != "pixels" && fs::is_directory(path, unknown);
      const Paths more = folder ? files_in(path, task, key) : Paths{path};
      files.insert(files.end(), more.begin(), more.end());
    }
  }
  std::set<std::string> seen;
  for (const auto& file : files) {
    if (seen.insert(fs::path(file).lexically_normal().string()).second) continue;
    fail(ExitCode::kUsage, "data.{}: {} comes twice; name it once, or with one pattern", key, file);
  }
  return files;
}

}  // namespace performer::data
