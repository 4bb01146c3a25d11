#include "performer/pretrained/shard_index.h"

#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/safe_text.h"
#include "performer/run/checkpoint_manifest.h"

namespace performer::pretrained {

std::map<std::string, std::string> parse_shard_index(std::string_view text,
                                                     const std::string& file) {
  const JsonLimits limits{.bytes = 1 << 24, .depth = 8, .values = 1 << 18};
  const auto json = parse_json(text, file, limits);
  const auto& map = JsonView(json, file).at("weight_map").value();
  if (!map.is_object() || map.empty()) {
    JsonView(json, file).at("weight_map").refuse("an object with a file for each tensor");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map.items()) {
    const bool plain = shard.is_string() && run::plain_file_name(shard.get<std::string>()) &&
                       shard.get<std::string>().ends_with(".safetensors");
    if (!plain) {
      fail(ExitCode::kCorrupt,
           "{}: tensor {} is said to be in {}; a shard must be a file NAME.safetensors of the same "
           "folder",
           file, shown(tensor),
           shown(shard.is_string() ? shard.get<std::string>() : shard.dump(-1, ' ', true)));
    }
    shards.emplace(tensor, shard.get<std::string>());
  }
  return shards;
}

}  // namespace performer::pretrained
