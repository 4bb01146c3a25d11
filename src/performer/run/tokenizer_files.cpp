#include "performer/run/tokenizer_files.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/run/checkpoint.h"

namespace performer::run {

using Json = nlohmann::ordered_json;

std::map<std::string, std::string> tokenizer_files(const data::TokenSpace& space) {
  std::map<std::string, std::string> files;
  try {
    files["tokenizer.json"] = space.to_json().dump(2) + "\n";
  } catch (const Json::type_error&) {
    const auto shown = Json(space.classes).dump(-1, ' ', true, Json::error_handler_t::replace);
    fail(ExitCode::kBadInput,
         "the labels of the training data must be UTF-8, got {}; convert the file", shown);
  }
  if (const auto bytes = std::ssize(files["tokenizer.json"]); bytes > kMaxTokenizerJsonBytes) {
    fail(ExitCode::kBadInput,
         "the {} labels of the training data take {} bytes in a checkpoint, at most {} are "
         "possible; is data.label_column right?",
         space.classes.size(), bytes, kMaxTokenizerJsonBytes);
  }
  if (auto bytes = space.model_bytes(); !bytes.empty()) files["tokenizer.model"] = std::move(bytes);
  return files;
}

Json parse_tokenizer_json(const std::string& text, const std::string& folder) {
  // More values than a task may have classes.
  const JsonLimits limits{.bytes = kMaxTokenizerJsonBytes, .values = std::int64_t{1} << 22};
  return parse_json(text, folder + "/tokenizer.json", limits);
}

data::TokenSpace tokenizer_from_files(const std::map<std::string, std::string>& files,
                                      const std::string& folder) {
  const auto json = files.find("tokenizer.json");
  if (json == files.end()) fail(ExitCode::kCorrupt, "{}: has no tokenizer.json", folder);
  const auto model = files.find("tokenizer.model");
  const auto values = parse_tokenizer_json(json->second, folder);
  return data::TokenSpace::from_json(values, model == files.end() ? std::string() : model->second);
}

}  // namespace performer::run
