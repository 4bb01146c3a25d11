#include "performer/pretrained/source.h"

#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/json.h"
#include "performer/core/safe_text.h"
#include "performer/core/sha256.h"

namespace performer::pretrained {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostConfig = 1 << 20;
constexpr std::int64_t kMostSmall = 1 << 26;  // of a tokenizer's file
constexpr std::string_view kPrefix = "source-";

// What a tokenizer is made of, and how the model is used to generate.
constexpr const char* kSmallFiles[] = {"tokenizer.json",
                                       "tokenizer_config.json",
                                       "vocab.txt",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "generation_config.json"};

std::string name_of(const fs::path& folder) {
  std::error_code unknown;
  const auto whole = fs::weakly_canonical(folder, unknown);
  const auto name = (unknown ? folder : whole).filename().string();
  return is_utf8(name) && !name.empty() ? name : "folder";
}

}  // namespace

std::string read_config_text(const fs::path& folder) {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown)) {
    fail(ExitCode::kBadInput,
         "{}: no such folder; download the model first, and name the folder that has its "
         "config.json",
         folder.string());
  }
  if (!is_there(folder / "config.json")) {
    fail(ExitCode::kBadInput,
         "{}: has no config.json; name the folder of a model in Hugging Face's "
         "layout",
         folder.string());
  }
  return read_file(folder / "config.json", kMostConfig);
}

Source source_of(const fs::path& folder, const std::string& architecture,
                 const std::vector<fs::path>& weights) {
  Source source{name_of(folder), architecture, {}, {}};
  source.small["config.json"] = read_config_text(folder);
  source.files["config.json"] = sha256_of(source.config());
  for (const auto& file : weights) source.files[file.filename().string()] = sha256_of_file(file);
  for (const char* name : kSmallFiles) {
    if (is_there(folder / name)) source.small[name] = read_file(folder / name, kMostSmall);
  }
  return source;
}

std::string Source::text() const {
  std::string all;
  for (const auto& [name, hash] : files) all += fmt::format("{} {}\n", name, hash);
  return folder + " sha256:" + sha256_of(all);
}

std::map<std::string, std::string> Source::checkpoint_files() const {
  std::map<std::string, std::string> named;
  for (const auto& [name, bytes] : small) named[std::string(kPrefix) + name] = bytes;
  const Json json = {{"folder", folder}, {"architecture", architecture}, {"files", files}};
  named["source.json"] = json.dump(2) + "\n";
  return named;
}

Source read_source(const run::Checkpoint& checkpoint) {
  const auto place = (checkpoint.folder() / "source.json").string();
  auto stored = checkpoint.tokenizer();
  const auto own = stored.find("source.json");
  if (own == stored.end() || !stored.contains(std::string(kPrefix) + "config.json")) {
    fail(
        ExitCode::kBadInput,
        "{}: was not converted from a folder in Hugging Face's layout; only such a model goes back "
        "to it",
        checkpoint.folder().string());
  }
  const auto json = parse_json(own->second, place);
  const JsonView view(json, place);
  Source source{view.at("folder").string(), view.at("architecture").string(), {}, {}};
  for (const auto& [name, hash] : view.at("files").value().items()) {
    source.files[name] = view.at("files").at(name).string();
  }
  for (auto& [name, bytes] : stored) {
    if (!name.starts_with(kPrefix)) continue;
    source.small[name.substr(kPrefix.size())] = std::move(bytes);
  }
  return source;
}

}  // namespace performer::pretrained
