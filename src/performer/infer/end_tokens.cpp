#include "performer/infer/end_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "performer/core/json.h"

namespace performer::infer {

std::vector<std::int64_t> end_tokens(const std::map<std::string, std::string>& files,
                                     const data::TokenSpace& space, const std::string& folder) {
  std::vector<std::int64_t> ends;
  const auto add = [&](std::int64_t token) {
    const bool known = token >= 0 && token < space.vocabulary;
    if (known && std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
  };
  add(space.eos);
  for (const char* name : {"source-generation_config.json", "source-config.json"}) {
    const auto file = files.find(name);
    if (file == files.end()) continue;
    const auto json = parse_json(file->second, folder + "/" + name);
    const JsonView view(json, folder + "/" + name);
    if (!view.contains("eos_token_id") || view.at("eos_token_id").value().is_null()) continue;
    const auto named = view.at("eos_token_id");
    if (!named.value().is_array()) {
      add(named.integer());
    } else {
      for (std::size_t i = 0; i < named.size(); ++i) add(named.at(i).integer());
    }
    break;
  }
  return ends;
}

}  // namespace performer::infer
