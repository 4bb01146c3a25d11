#pragma once

#include <filesystem>

namespace performer::pretrained {

/// A folder that appears under its name complete, or not at all: written beside it and renamed by
/// commit(). kUsage where something of that name is there already.
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
  std::filesystem::path folder_, temporary_;
};

}  // namespace performer::pretrained
