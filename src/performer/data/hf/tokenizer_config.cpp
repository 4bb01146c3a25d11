#include "performer/data/hf/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/data/hf/json_fields.h"
#include "performer/data/hf/tokenizer_json.h"

namespace performer::data::hf {
namespace {

// Chat templates and added tokens make it long.
constexpr JsonLimits kConfigLimits{.bytes = std::int64_t{1} << 24, .values = std::int64_t{1} << 18};

// A token is written as its text, or as an object that has it.
std::string text_of_token(const JsonView& json) {
  return json.contains("content") ? json.at("content").string() : json.string();
}

std::string read_token(const JsonView& json, const std::string& key) {
  return has(json, key) ? text_of_token(json.at(key)) : "";
}

}  // namespace

TokenizerConfig::TokenizerConfig(const TokenizerFiles& files) {
  const auto read = [&](const char* name) {
    const std::string place = files.place(name);
    const std::string* text = files.find(name);
    File file{place, nlohmann::ordered_json::object()};
    if (text != nullptr) file.json = parse_json(*text, place, kConfigLimits);
    if (!file.json.is_object()) JsonView(file.json, place).refuse("an object");
    return file;
  };
  config_ = read("tokenizer_config.json");
  map_ = read("special_tokens_map.json");
}

std::string TokenizerConfig::tokenizer_class() const {
  std::string name = text_of(view(config_), "tokenizer_class", "");
  constexpr std::string_view kFast = "Fast";
  if (name.ends_with(kFast)) name.resize(name.size() - kFast.size());
  return name;
}

void TokenizerConfig::refuse_class(const std::string& supported) const {
  view(config_).at("tokenizer_class").refuse(supported + " without a tokenizer.json");
}

bool TokenizerConfig::flag(const std::string& key, bool otherwise) const {
  return flag_of(view(config_), key, otherwise);
}

std::string TokenizerConfig::token(const std::string& key, const std::string& otherwise) const {
  for (const File* file : {&config_, &map_}) {
    if (std::string text = read_token(view(*file), key); !text.empty()) return text;
  }
  return otherwise;
}

DeclaredToken TokenizerConfig::declared(const std::string& key) const {
  for (const File* file : {&config_, &map_}) {
    const JsonView json = view(*file);
    if (!has(json, key) || !json.at(key).contains("content")) continue;
    DeclaredToken token = read_added_token(json.at(key), -1);
    token.normalized = flag_of(json.at(key), "normalized", false);
    return token;
  }
  return {};
}

std::vector<DeclaredToken> TokenizerConfig::added_tokens() const {
  std::vector<DeclaredToken> tokens;
  const JsonView config = view(config_);
  if (!has(config, "added_tokens_decoder")) return tokens;
  const JsonView list = config.at("added_tokens_decoder");
  if (!list.value().is_object()) list.refuse("an object");
  for (const auto& [key, value] : list.value().items()) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      list.refuse("an object whose keys are ids");
    }
    tokens.push_back(read_added_token(list.at(key), id));
  }
  return tokens;
}

SpecialIds special_ids(const TokenizerConfig& config,
                       const std::vector<std::pair<std::string, std::string>>& defaults,
                       const std::function<std::int64_t(const std::string&)>& find,
                       const std::string& folder) {
  const auto id = [&](const std::string& key) {
    const std::string named = config.token(key);
    if (!named.empty()) {
      const std::int64_t found = find(named);
      if (found >= 0) return found;
      fail(ExitCode::kCorrupt, "{}: the {} {} is in no vocabulary of the folder", folder, key,
           shown(named));
    }
    for (const auto& [name, text] : defaults) {
      if (name == key) return find(text);
    }
    return std::int64_t{-1};
  };
  return {.unknown = id("unk_token"),
          .pad = id("pad_token"),
          .bos = id("bos_token"),
          .eos = id("eos_token"),
          .cls = id("cls_token"),
          .sep = id("sep_token"),
          .mask = id("mask_token")};
}

void add_special_tokens(std::vector<DeclaredToken>& added, const TokenizerConfig& config,
                        const SpecialIds& special, const Vocabulary& vocabulary) {
  const std::pair<const char*, std::int64_t> all[] = {
      {"unk_token", special.unknown}, {"bos_token", special.bos}, {"eos_token", special.eos},
      {"sep_token", special.sep},     {"pad_token", special.pad}, {"cls_token", special.cls},
      {"mask_token", special.mask}};
  for (const auto& [key, id] : all) {
    const bool there = std::ranges::any_of(added, [wanted = id](const DeclaredToken& declared) {
      return declared.token.id == wanted;
    });
    if (id < 0 || there) continue;
    DeclaredToken declared = config.declared(key);
    declared.token.text = vocabulary.text(id);
    declared.token.id = id;
    declared.token.special = true;
    added.push_back(std::move(declared));
  }
}

}  // namespace performer::data::hf
