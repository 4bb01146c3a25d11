#include "performer/run/checkpoint_writer.h"

#include <algorithm>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/run/checkpoint.h"
#include "performer/run/checkpoint_manifest.h"

namespace performer::run {
namespace {

namespace fs = std::filesystem;

// Writes the files of one checkpoint into a folder and collects the manifest.
class FolderWriter {
 public:
  FolderWriter(const fs::path& folder, std::int64_t step) : folder_(folder) {
    manifest_.step = step;
  }
  void tensors(const std::string& name, const NamedTensors& tensors) {
    FileWriter file(new_path(name));
    write_tensors(file, tensors, {{"format", "pt"}});
    add(name, file);
  }
  void text(const std::string& name, const std::string& bytes) {
    FileWriter file(new_path(name));
    file.write(bytes);
    add(name, file);
  }
  /// The manifest's hash; everything is durable then.
  std::string finish() {
    FileWriter file(folder_ / "manifest.json");
    file.write(manifest_text(manifest_));
    std::string hash = file.finish();
    fsync_folder(folder_);
    return hash;
  }

 private:
  fs::path new_path(const std::string& name) const {
    const bool taken = std::any_of(manifest_.files.begin(), manifest_.files.end(),
                                   [&](const ManifestFile& file) { return file.name == name; });
    if (taken || !plain_file_name(name)) {
      fail(ExitCode::kFailure, "checkpoint: \"{}\" cannot be the name of a file in it", name);
    }
    return folder_ / name;
  }
  void add(const std::string& name, FileWriter& file) {
    const std::string hash = file.finish();
    manifest_.files.push_back({name, file.bytes(), hash});
  }

  fs::path folder_;
  Manifest manifest_;
};

}  // namespace

std::string write_checkpoint(const fs::path& folder, std::int64_t step,
                             const CheckpointContent& content) {
  FolderWriter writer(folder, step);
  writer.tensors("model.safetensors", content.model);
  if (!content.kept.empty()) writer.tensors(kKeptFile, content.kept);
  writer.text("config.json", content.config_json);
  for (const auto* files : {&content.tokenizer, &content.reports}) {
    for (const auto& [name, bytes] : *files) writer.text(name, bytes);
  }
  writer.tensors("trainer.safetensors", content.trainer);
  writer.text("trainer.json", content.trainer_json);
  return writer.finish();
}

}  // namespace performer::run
