#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "performer/core/safetensors.h"

namespace performer::pretrained {

/// A tensor in one of the files of a folder.
struct FileTensor {
  const safetensors::Reader* reader = nullptr;
  const safetensors::TensorEntry* entry = nullptr;
  std::string file;  // its path, for messages
};

/// The tensors of a folder: model.safetensors, or the shards that its index names. Headers are read
/// and checked, nothing more. kBadInput where there are no such files (with the line that makes
/// them of a pickled one), kCorrupt where index and shards do not agree.
class TensorFolder {
 public:
  explicit TensorFolder(const std::filesystem::path& folder);

  const std::map<std::string, FileTensor>& tensors() const { return tensors_; }
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  void open_shards(const std::filesystem::path& folder);
  const safetensors::Reader& open(const std::filesystem::path& file);

  std::vector<std::filesystem::path> files_;
  std::vector<std::unique_ptr<safetensors::Reader>> readers_;
  std::map<std::string, FileTensor> tensors_;
};

}  // namespace performer::pretrained
