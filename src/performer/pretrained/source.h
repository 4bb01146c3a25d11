#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "performer/run/checkpoint.h"

namespace performer::pretrained {

/// Where a converted model came from, as its checkpoint remembers it: source.json, the folder's own
/// config.json as source-config.json, and its other small files by the same rule.
struct Source {
  std::string folder;                        // its name, without what is above it
  std::string architecture;                  // BertForMaskedLM
  std::map<std::string, std::string> files;  // config.json and weights: name -> SHA-256
  std::map<std::string, std::string> small;  // config.json, tokenizer: name -> bytes

  const std::string& config() const { return small.at("config.json"); }
  /// "NAME sha256:HASH", the hash being one of all files.
  std::string text() const;
  /// The files of a checkpoint that keep this.
  std::map<std::string, std::string> checkpoint_files() const;
};

/// Of a folder whose weights are `weights`; hashes them. kBadInput where a small file is larger than
/// any such file.
Source source_of(const std::filesystem::path& folder, const std::string& architecture,
                 const std::vector<std::filesystem::path>& weights);

/// kBadInput for a checkpoint that was not converted.
Source read_source(const run::Checkpoint& checkpoint);

/// config.json of a folder.
std::string read_config_text(const std::filesystem::path& folder);

}  // namespace performer::pretrained
