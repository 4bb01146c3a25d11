#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "performer/data/token_space.h"

namespace performer::run {

/// The files of a checkpoint that hold the meaning of tokens: name -> bytes. kBadInput for classes
/// that they cannot hold.
std::map<std::string, std::string> tokenizer_files(const data::TokenSpace& space);
/// tokenizer.json of `folder`; kCorrupt beyond the limits of such a file.
nlohmann::ordered_json parse_tokenizer_json(const std::string& text, const std::string& folder);
data::TokenSpace tokenizer_from_files(const std::map<std::string, std::string>& files,
                                      const std::string& folder);

}  // namespace performer::run
