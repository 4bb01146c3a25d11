#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "performer/core/json.h"
#include "performer/data/hf/tokenizer.h"
#include "performer/data/hf/tokenizer_files.h"

namespace performer::data::hf {

/// tokenizer_config.json, and special_tokens_map.json where it is silent: settings and the names of
/// special tokens. Both may be absent.
class TokenizerConfig {
 public:
  explicit TokenizerConfig(const TokenizerFiles& files);

  /// LlamaTokenizerFast as LlamaTokenizer; empty where no file says it.
  std::string tokenizer_class() const;
  [[noreturn]] void refuse_class(const std::string& supported) const;
  bool flag(const std::string& key, bool otherwise) const;
  /// The text of the token that is called mask_token and the like; empty: there is none.
  std::string token(const std::string& key, const std::string& otherwise = {}) const;
  /// The same with its settings, if any file has them; without an id.
  DeclaredToken declared(const std::string& key) const;
  /// Of added_tokens_decoder.
  std::vector<DeclaredToken> added_tokens() const;

 private:
  struct File {
    std::string name;
    nlohmann::ordered_json json;
  };
  JsonView view(const File& file) const { return {file.json, file.name}; }

  File config_, map_;
};

/// The ids of the special tokens that the files, or `defaults` by the same names, call so; kCorrupt
/// where one that a file names is no token. `find` returns -1 for what is none.
SpecialIds special_ids(const TokenizerConfig& config,
                       const std::vector<std::pair<std::string, std::string>>& defaults,
                       const std::function<std::int64_t(const std::string&)>& find,
                       const std::string& folder);

/// Adds those special tokens that `added` lacks: whole in texts too, and left out of decoded text.
void add_special_tokens(std::vector<DeclaredToken>& added, const TokenizerConfig& config,
                        const SpecialIds& special, const Vocabulary& vocabulary);

}  // namespace performer::data::hf
