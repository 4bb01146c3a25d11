#include "performer/run/checkpoint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/sha256.h"

namespace performer::run {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxManifest = 1 << 20;
constexpr std::int64_t kMaxPointer = 1 << 10;
constexpr std::int64_t kMaxTrainer = 1 << 20;    // trainer.json
constexpr std::int64_t kMaxTokenizer = 1 << 28;  // a file of the tokenizer

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// A small file of ours: what cannot be read at all counts as damage, named.
std::string read_own(const fs::path& path, std::int64_t max_bytes) {
  std::error_code error;
  if (!is_file(path)) {
    fail(ExitCode::kCorrupt, "{}: {}", path.string(),
         fs::exists(path, error) ? "not a file" : "missing");
  }
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

const ManifestFile* find(const Manifest& manifest, std::string_view name) {
  const auto found = std::find_if(manifest.files.begin(), manifest.files.end(),
                                  [&](const ManifestFile& file) { return file.name == name; });
  return found == manifest.files.end() ? nullptr : &*found;
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
    if (find(checkpoint.manifest_, name) == nullptr) {
      fail(ExitCode::kCorrupt, "{}: does not list {}", manifest.string(), name);
    }
  }
  check_files(folder, checkpoint.manifest_);
  return checkpoint;
}

std::string Checkpoint::config() const {
  return read_own(folder_ / "config.json", kMaxConfigBytes);
}

std::string Checkpoint::trainer() const { return read_own(folder_ / "trainer.json", kMaxTrainer); }

std::map<std::string, std::string> Checkpoint::tokenizer() const {
  std::map<std::string, std::string> files;
  for (const ManifestFile& file : manifest_.files) {
    const bool fixed =
        std::find(kFixedFiles.begin(), kFixedFiles.end(), file.name) != kFixedFiles.end();
    const bool told = file.name.starts_with("report.");
    if (!fixed && !told && file.name != kKeptFile) {
      files.emplace(file.name, read_own(folder_ / file.name, kMaxTokenizer));
    }
  }
  return files;
}

StoredConfig read_config(const fs::path& folder) {
  const fs::path place = folder / "manifest.json", config = folder / "config.json";
  const Manifest manifest = parse_manifest(read_own(place, kMaxManifest), place.string());
  std::string text = read_own(config, kMaxConfigBytes);
  const ManifestFile* listed = find(manifest, "config.json");
  if (listed == nullptr || sha256_of(text) != listed->sha256) {
    fail(ExitCode::kCorrupt, "{}: damaged: its hash is not the one in the manifest",
         config.string());
  }
  return {std::move(text), manifest.version};
}

Pointer read_pointer(const fs::path& file) {
  return parse_pointer(read_own(file, kMaxPointer), file.string());
}

std::string hash_of_manifest(const fs::path& folder) {
  return sha256_of(read_own(folder / "manifest.json", kMaxManifest));
}

Checkpoint open_pointed(const fs::path& run_folder, const std::string& pointer) {
  const fs::path file = run_folder / pointer;
  const Pointer named = read_pointer(file);
  const fs::path folder = checkpoint_folder(run_folder, named.step);
  if (!is_there(folder)) {
    fail(ExitCode::kCorrupt, "{}: missing, though {} names it", folder.string(), file.string());
  }
  Checkpoint checkpoint = Checkpoint::open(folder);
  if (checkpoint.manifest_sha256() != named.manifest_sha256) {
    fail(ExitCode::kCorrupt, "{}: names another checkpoint than the one in {}", file.string(),
         folder.string());
  }
  return checkpoint;
}

}  // namespace performer::run
