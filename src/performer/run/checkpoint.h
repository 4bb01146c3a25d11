#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "performer/run/checkpoint_manifest.h"

namespace performer::run {

/// The longest files of a checkpoint, for who reads them and for who writes what is to be read. The
/// TOML of a recipe may be 1 MiB: escapes, indentation and folders before names make JSON longer.
inline constexpr std::int64_t kMaxConfigBytes = std::int64_t{1} << 22;         // config.json
inline constexpr std::int64_t kMaxTokenizerJsonBytes = std::int64_t{1} << 26;  // tokenizer.json

/// Tensors that a converted model came with and does not compute with.
inline constexpr const char* kKeptFile = "kept.safetensors";

/// A checkpoint folder of which every byte was verified against its manifest.
class Checkpoint {
 public:
  /// kCorrupt naming the first bad file unless the folder holds exactly the files of its manifest,
  /// with their sizes and hashes.
  static Checkpoint open(const std::filesystem::path& folder);

  std::int64_t step() const { return manifest_.step; }
  std::int64_t version() const { return manifest_.version; }
  const std::filesystem::path& folder() const { return folder_; }
  /// Hash of manifest.json: equal where two checkpoints are equal in all bytes.
  const std::string& manifest_sha256() const { return manifest_sha256_; }

  std::filesystem::path model_file() const { return folder_ / "model.safetensors"; }
  std::filesystem::path trainer_file() const { return folder_ / "trainer.safetensors"; }
  /// JSON texts.
  std::string config() const;
  std::string trainer() const;
  /// The tokenizer's files, name -> bytes.
  std::map<std::string, std::string> tokenizer() const;

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
  std::string manifest_sha256_;
};

/// config.json of the checkpoint in `folder`, verified, without a look at its large files.
struct StoredConfig {
  std::string text;
  std::int64_t version = 0;  // of the checkpoint
};
StoredConfig read_config(const std::filesystem::path& folder);

/// A run's pointer file, and the hash of a checkpoint's manifest as it is; kCorrupt where the file
/// is missing, no regular file or damaged.
Pointer read_pointer(const std::filesystem::path& file);
std::string hash_of_manifest(const std::filesystem::path& folder);

/// The checkpoint that a run's pointer file (RUN/latest, RUN/best) names.
Checkpoint open_pointed(const std::filesystem::path& run_folder, const std::string& pointer);

std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder, std::int64_t step);

}  // namespace performer::run
