#include "performer/train/checkpoint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/sha256.h"

namespace performer::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxManifest = 1 << 20;
constexpr std::int64_t kMaxPointer = 1 << 10;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// A small file of ours: what cannot be read at all counts as damage, named.
std::string read_own(const fs::path& path, std::int64_t max_bytes) {
  if (!is_file(path)) {
    fail(ExitCode::kCorrupt, "{}: missing", path.string());
  }
  std::error_code error;
  if (static_cast<std::int64_t>(fs::file_size(path, error)) > max_bytes && !error) {
    fail(ExitCode::kCorrupt, "{}: damaged: longer than such a file can be", path.string());
  }
  return read_file(path, max_bytes);
}

void check_no_other_files(const fs::path& folder, const Manifest& manifest) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool listed = std::any_of(manifest.files.begin(), manifest.files.end(),
                                    [&](const ManifestFile& file) { return file.name == name; });
    if (!listed && name != "manifest.json") {
      fail(ExitCode::kCorrupt, "{}: not listed in the checkpoint's manifest.json",
           entry->path().string());
    }
  }
  if (error) {
    fail(ExitCode::kBadInput, "{}: cannot be read: {}", folder.string(), error.message());
  }
}

// Sizes of all files first: they cost nothing.
void check_files(const fs::path& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const fs::path path = folder / file.name;
    if (!is_file(path)) {
      fail(ExitCode::kCorrupt, "{}: missing", path.string());
    }
    std::error_code error;
    const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error));
    if (error || bytes != file.bytes) {
      fail(ExitCode::kCorrupt, "{}: damaged: {} bytes, {} in the manifest", path.string(), bytes,
           file.bytes);
    }
  }
  check_no_other_files(folder, manifest);
  for (const ManifestFile& file : manifest.files) {
    if (sha256_of_file(folder / file.name) != file.sha256) {
      fail(ExitCode::kCorrupt, "{}: damaged: its hash is not the one in the manifest",
           (folder / file.name).string());
    }
  }
}

bool has(const Manifest& manifest, std::string_view name) {
  return std::any_of(manifest.files.begin(), manifest.files.end(),
                     [&](const ManifestFile& file) { return file.name == name; });
}

constexpr std::array<std::string_view, 4> kFixedFiles{"model.safetensors", "trainer.safetensors",
                                                      "config.json", "trainer.json"};

}  // namespace

fs::path checkpoint_folder(const fs::path& run_folder, std::int64_t step) {
  return run_folder / "checkpoints" / step_name(step);
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const fs::path manifest = folder / "manifest.json";
  const std::string text = read_own(manifest, kMaxManifest);
  checkpoint.manifest_ = parse_manifest(text, manifest.string());
  checkpoint.manifest_sha256_ = sha256_of(text);
  for (const std::string_view name : kFixedFiles) {
    if (!has(checkpoint.manifest_, name)) {
      fail(ExitCode::kCorrupt, "{}: does not list {}", manifest.string(), name);
    }
  }
  check_files(folder, checkpoint.manifest_);
  return checkpoint;
}

std::string Checkpoint::config() const { return read_file(folder_ / "config.json"); }

std::string Checkpoint::trainer() const { return read_file(folder_ / "trainer.json"); }

std::map<std::string, std::string> Checkpoint::tokenizer() const {
  std::map<std::string, std::string> files;
  for (const ManifestFile& file : manifest_.files) {
    if (std::find(kFixedFiles.begin(), kFixedFiles.end(), file.name) == kFixedFiles.end()) {
      files.emplace(file.name, read_file(folder_ / file.name));
    }
  }
  return files;
}

Checkpoint open_pointed(const fs::path& run_folder, const std::string& pointer) {
  const fs::path file = run_folder / pointer;
  const Pointer named = parse_pointer(read_own(file, kMaxPointer), file.string());
  const fs::path folder = checkpoint_folder(run_folder, named.step);
  if (!fs::exists(folder)) {
    fail(ExitCode::kCorrupt, "{}: missing, though {} names it", folder.string(), file.string());
  }
  Checkpoint checkpoint = Checkpoint::open(folder);
  if (checkpoint.manifest_sha256() != named.manifest_sha256) {
    fail(ExitCode::kCorrupt, "{}: names another checkpoint than the one in {}", file.string(),
         folder.string());
  }
  return checkpoint;
}

Checkpoint resolve_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    fail(ExitCode::kBadInput, "{}: no such folder; name a run or a checkpoint folder",
         path.string());
  }
  if (fs::exists(path / "best", ignored)) {
    return open_pointed(path, "best");
  }
  if (fs::exists(path / "latest", ignored)) {
    return open_pointed(path, "latest");
  }
  const fs::path checkpoints = path / "checkpoints";
  if (fs::is_directory(checkpoints, ignored)) {
    for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
      if (parse_step_name(entry.path().filename().string())) {
        fail(ExitCode::kCorrupt, "{}: missing, though there are checkpoints",
             (path / "latest").string());
      }
    }
  }
  const bool checkpoint = fs::exists(path / "manifest.json", ignored) ||
                          fs::exists(path / "model.safetensors", ignored);
  if (!checkpoint) {
    fail(ExitCode::kBadInput, "{}: neither a checkpoint nor a run that has saved one",
         path.string());
  }
  return Checkpoint::open(path);
}

}  // namespace performer::train
