#pragma once

#include <filesystem>
#include <string>

namespace performer::pretrained {

struct Exported {
  std::string architecture, from;
  std::int64_t tensors = 0;
  bool approximate = false;  // the checkpoint's attention is not the exact one that is exported
};

/// Writes a converted checkpoint back to the new folder `to` in Hugging Face's layout: config.json,
/// model.safetensors in float32, the tokenizer's files. Exact attention is what such a folder means.
Exported export_folder(const std::filesystem::path& checkpoint, const std::filesystem::path& to);

}  // namespace performer::pretrained
