#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The two small texts that make a folder a checkpoint. Each carries a hash of itself and has one
/// spelling only, so that any changed byte is noticed.
namespace performer::run {

struct ManifestFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;
};

/// Of the checkpoints that this program writes; it reads those of 1 to 3 too. The version goes up
/// when config.json or trainer.json get a key (checkpoint_versions.h).
inline constexpr std::int64_t kCheckpointVersion = 4;

/// manifest.json: what the checkpoint of a step consists of.
struct Manifest {
  std::int64_t step = 0;
  std::vector<ManifestFile> files;
  std::int64_t version = kCheckpointVersion;
};

/// Names become paths: only plain ones of visible files, and not the manifest's own.
bool plain_file_name(const std::string& name);

std::string manifest_text(const Manifest& manifest);
/// `file` names the text in errors (kCorrupt; kBadInput for a format newer than this program's).
Manifest parse_manifest(const std::string& text, const std::string& file);

/// `latest` and `best`: the step they name and the hash of its manifest.json.
struct Pointer {
  std::int64_t step = 0;
  std::string manifest_sha256;
};

std::string pointer_text(const Pointer& pointer);
Pointer parse_pointer(const std::string& text, const std::string& file);

/// "step-000000100"; more digits for longer numbers.
std::string step_name(std::int64_t step);
/// The step of such a name; nothing for any other name.
std::optional<std::int64_t> parse_step_name(std::string_view name);

}  // namespace performer::run
