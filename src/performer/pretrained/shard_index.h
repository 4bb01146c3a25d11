#pragma once

#include <map>
#include <string>
#include <string_view>

namespace performer::pretrained {

/// model.safetensors.index.json: tensor name -> file. kCorrupt, naming `file`, unless each file is a
/// plain name in the same folder that ends in .safetensors.
std::map<std::string, std::string> parse_shard_index(std::string_view text,
                                                     const std::string& file);

}  // namespace performer::pretrained
