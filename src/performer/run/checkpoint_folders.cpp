#include "performer/run/checkpoint_folders.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/run/checkpoint_manifest.h"

namespace performer::run {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";
// A checkpoint on its way out, where the file system cannot exchange two folders at once.
constexpr std::string_view kReplaced = ".old-";

bool is_temporary(std::string_view name) {
  if (!name.starts_with(kTemporary)) return false;
  name.remove_prefix(kTemporary.size());
  const auto dash = name.rfind('-');
  if (dash == name.npos || dash + 1 == name.size()) return false;
  return name.find_first_not_of("0123456789", dash + 1) == name.npos &&
         parse_step_name(name.substr(0, dash)).has_value();
}

bool is_replaced(std::string_view name) {
  return name.starts_with(kReplaced) && parse_step_name(name.substr(kReplaced.size())).has_value();
}

}  // namespace

void make_folder(const fs::path& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) {
    fail_write(folder, error.value());
  }
  if (made && folder.has_parent_path()) {
    fsync_folder(folder.parent_path());
  }
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    fail_write(path, error.value());
  }
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) {
    fail(ExitCode::kBadInput, "{}: cannot be read: {}", folder.string(), error.message());
  }
  return entries;
}

std::vector<std::int64_t> saved_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const fs::path& path : entries_of(folder)) {
    if (const auto step = parse_step_name(path.filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string temporary_name(std::int64_t step) {
  return fmt::format("{}{}-{}", kTemporary, step_name(step), ::getpid());
}

std::string replaced_name(std::int64_t step) {
  return fmt::format("{}{}", kReplaced, step_name(step));
}

void clear_leftovers(const fs::path& folder) {
  for (const fs::path& path : entries_of(folder)) {
    std::error_code unknown;
    if (!fs::is_directory(fs::symlink_status(path, unknown))) continue;
    const std::string name = path.filename().string();
    if (is_temporary(name)) {
      remove_tree(path);
    } else if (is_replaced(name)) {
      const fs::path home = folder / name.substr(kReplaced.size());
      if (is_there(home)) {
        remove_tree(path);
      } else {
        rename_path(path, home);
      }
    }
  }
}

}  // namespace performer::run
