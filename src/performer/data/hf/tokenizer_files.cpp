#include "performer/data/hf/tokenizer_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/json.h"
#include "performer/data/hf/plain_files.h"
#include "performer/data/hf/tokenizer_config.h"
#include "performer/data/hf/tokenizer_json.h"

namespace performer::data::hf {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 26;
constexpr const char* kFileNames[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json",
    "merges.txt"};

void check_template(const Tokenizer& tokenizer, const std::string& folder) {
  for (const auto* ids : {&tokenizer.around().before, &tokenizer.around().after}) {
    for (const std::int64_t id : *ids) {
      if (id >= 0 && id < tokenizer.vocabulary()) continue;
      fail(ExitCode::kCorrupt, "{}: the post-processor adds the id {}, of {} tokens", folder, id,
           tokenizer.vocabulary());
    }
  }
}

TokenizerParts read_json_file(const TokenizerFiles& files, const TokenizerConfig& config) {
  TokenizerParts parts =
      read_tokenizer_json(*files.find("tokenizer.json"), files.place("tokenizer.json"));
  const auto find = [&](const std::string& text) -> std::int64_t {
    for (const auto& declared : parts.added) {
      if (declared.token.text == text) return declared.token.id;
    }
    return parts.model->vocabulary().find(text);
  };
  parts.special = special_ids(config, {}, find, files.folder);
  return parts;
}

}  // namespace

const std::string* TokenizerFiles::find(const std::string& name) const {
  const auto found = texts.find(name);
  return found == texts.end() ? nullptr : &found->second;
}

TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder) {
  TokenizerFiles files{folder.string(), {}};
  for (const char* name : kFileNames) {
    const auto path = folder / name;
    if (!is_there(path)) continue;
    if (const auto size = open_regular(path).size; size > kMostBytes) {
      fail(ExitCode::kCorrupt, "{}: {} bytes, where at most {} are allowed", path.string(), size,
           kMostBytes);
    }
    files.texts[name] = read_file(path, kMostBytes);
  }
  return files;
}

std::string bundle(const TokenizerFiles& files) { return Json(files.texts).dump(); }

TokenizerFiles unbundle(const std::string& bundle, const std::string& place) {
  // Escapes make a file up to twice as long.
  const JsonLimits limits{.bytes = 2 * std::ssize(kFileNames) * kMostBytes, .values = 64};
  const Json json = parse_json(bundle, place, limits);
  TokenizerFiles files{place, {}};
  if (!json.is_object()) JsonView(json, place).refuse("an object of files");
  for (const auto& [name, text] : json.items()) {
    if (std::ranges::find(kFileNames, name) == std::end(kFileNames) || !text.is_string()) {
      fail(ExitCode::kCorrupt, "{}: must hold files of a tokenizer by their names alone", place);
    }
    files.texts[name] = text.get<std::string>();
  }
  return files;
}

std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerFiles& files) {
  const TokenizerConfig config(files);
  TokenizerParts parts;
  if (files.find("tokenizer.json") != nullptr) {
    parts = read_json_file(files, config);
  } else if (files.find("vocab.txt") != nullptr) {
    parts = read_vocabulary_file(files, config);
  } else if (files.find("vocab.json") != nullptr && files.find("merges.txt") != nullptr) {
    parts = read_merges_files(files, config);
  } else {
    return nullptr;
  }
  auto tokenizer = std::make_unique<Tokenizer>(std::move(parts), files.folder);
  check_template(*tokenizer, files.folder);
  return tokenizer;
}

}  // namespace performer::data::hf
