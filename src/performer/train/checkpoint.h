#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "performer/train/checkpoint_manifest.h"

namespace performer::train {

/// A checkpoint folder of which every byte was verified against its manifest.
class Checkpoint {
 public:
  /// kCorrupt naming the first bad file unless the folder holds exactly the files of its manifest,
  /// with their sizes and hashes.
  static Checkpoint open(const std::filesystem::path& folder);

  std::int64_t step() const { return manifest_.step; }
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

/// The checkpoint that a user means by `path`: a checkpoint folder, or a run folder, whose `best`
/// (else `latest`) is taken. kBadInput where there is none, kCorrupt naming the file where it does
/// not verify: no other one is taken in its place.
Checkpoint resolve_checkpoint(const std::filesystem::path& path);

/// The checkpoint that a run's pointer file (RUN/latest, RUN/best) names.
Checkpoint open_pointed(const std::filesystem::path& run_folder, const std::string& pointer);

std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder, std::int64_t step);

}  // namespace performer::train
