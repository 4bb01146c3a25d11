#pragma once

#include <filesystem>

#include "performer/core/file.h"

namespace performer::pretrained {

/// A folder that appears under its name complete, or not at all: written beside it and renamed by
/// commit(). kUsage where something of that name is there already. Making one clears away what
/// programs that were killed have left of the same folder.
class NewFolder {
 public:
  explicit NewFolder(std::filesystem::path folder);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to write until commit().
  const std::filesystem::path& path() const { return temporary_; }
  void commit();

 private:
  void make_temporary();

  std::filesystem::path folder_, temporary_;
  FileDescriptor lock_;  // while its program lives nobody clears the temporary folder away
};

}  // namespace performer::pretrained
