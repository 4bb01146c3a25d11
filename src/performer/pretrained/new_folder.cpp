#include "performer/pretrained/new_folder.h"

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/run/checkpoint_folders.h"

namespace performer::pretrained {

namespace fs = std::filesystem;

NewFolder::NewFolder(fs::path folder) : folder_(std::move(folder)) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "out/"
  if (folder_.filename().empty() || folder_.filename() == "." || folder_.filename() == "..") {
    fail(ExitCode::kUsage, "{}: is no name for a new folder", folder_.string());
  }
  if (is_there(folder_)) {
    fail(ExitCode::kUsage, "{}: is there already; name a new folder, or move that one away",
         folder_.string());
  }
  temporary_ =
      folder_of(folder_) / fmt::format(".{}.{}.tmp", folder_.filename().string(), ::getpid());
  run::remove_tree(temporary_);  // of a killed program that had this number
  run::make_folder(temporary_);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  fsync_folder(temporary_);
  rename_path(temporary_, folder_);
  temporary_.clear();
  fsync_folder(folder_of(folder_));
}

}  // namespace performer::pretrained
