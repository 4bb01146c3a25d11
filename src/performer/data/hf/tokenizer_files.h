#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "performer/data/hf/tokenizer.h"

namespace performer::data::hf {

/// The files of a folder that say what its tokens are.
struct TokenizerFiles {
  std::string folder;                        // what errors call it
  std::map<std::string, std::string> texts;  // by name

  /// The text of a file; nullptr where the folder has none.
  const std::string* find(const std::string& name) const;
  std::string place(const std::string& name) const { return folder + "/" + name; }
};

/// Of the names that a tokenizer may have, those that are there; none is an empty map. kBadInput
/// for what cannot be read, kCorrupt for files of more than 64 MiB.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder);

/// The files as one, for a checkpoint, and back; kCorrupt where `bundle`, which errors call `place`,
/// is none.
std::string bundle(const TokenizerFiles& files);
TokenizerFiles unbundle(const std::string& bundle, const std::string& place);

/// tokenizer.json where it is there, else vocab.txt (BERT, ESM), else vocab.json and merges.txt
/// (GPT-2, RoBERTa). kCorrupt, in one line, for what is damaged or not supported; nullptr where none
/// of these files is there.
std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerFiles& files);

}  // namespace performer::data::hf
