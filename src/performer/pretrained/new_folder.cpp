#include "performer/pretrained/new_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/run/checkpoint_folders.h"

namespace performer::pretrained {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kNames = 1'000'000;
constexpr std::string_view kEnd = ".tmp";

std::string prefix_of(const fs::path& folder) { return "." + folder.filename().string() + "."; }

FileDescriptor open_folder(const fs::path& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_left(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || !name.ends_with(kEnd)) return false;
  if (name.size() <= prefix.size() + kEnd.size()) return false;
  name.remove_prefix(prefix.size()), name.remove_suffix(kEnd.size());
  return name.find_first_not_of("0123456789") == name.npos;
}

void clear_left(const fs::path& folder) {
  for (const fs::path& path : run::entries_of(folder_of(folder))) {
    if (!is_left(path.filename().string(), prefix_of(folder))) continue;
    const FileDescriptor left = open_folder(path);
    if (left.get() >= 0 && ::flock(left.get(), LOCK_EX | LOCK_NB) == 0) run::remove_tree(path);
  }
}

fs::path make_free(const fs::path& folder) {
  for (std::int64_t i = 0; i < kNames; ++i) {
    const auto number = (static_cast<std::int64_t>(::getpid()) * 1000 + i) % kNames;
    auto path = folder_of(folder) / fmt::format("{}{}{}", prefix_of(folder), number, kEnd);
    if (::mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) fail_write(folder, errno);
  }
  fail_write(folder, EEXIST);
}

}  // namespace

NewFolder::NewFolder(fs::path folder) : folder_(std::move(folder)) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "out/"
  if (folder_.filename().empty() || folder_.filename() == "." || folder_.filename() == "..") {
    fail(ExitCode::kUsage, "{}: is no name for a new folder", folder_.string());
  }
  if (is_there(folder_)) {
    fail(ExitCode::kUsage, "{}: is there already; name a new folder, or move that one away",
         folder_.string());
  }
  run::make_folder(folder_of(folder_));
  clear_left(folder_);
  make_temporary();
}

// Another program may clear the folder away between making and locking: then it is made again.
void NewFolder::make_temporary() {
  struct stat status {};
  do {
    temporary_ = make_free(folder_);
    lock_ = open_folder(temporary_);
    // Where a file system cannot lock, nobody clears anything away either.
    if (lock_.get() >= 0) ::flock(lock_.get(), LOCK_EX);
  } while (::stat(temporary_.c_str(), &status) != 0);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  fsync_folder(temporary_);
  rename_path(temporary_, folder_);
  temporary_.clear();
  lock_.reset();
  fsync_folder(folder_of(folder_));
}

}  // namespace performer::pretrained
