#include "performer/pretrained/hf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"

namespace performer::pretrained {

using Json = nlohmann::ordered_json;

HfConfig::HfConfig(std::string_view text, std::string file)
    : json_(parse_json(text, file)), file_(std::move(file)) {
  if (!json_.is_object()) view().refuse("an object");
}

HfConfig::HfConfig(Json json, std::string file, std::string place)
    : json_(std::move(json)), file_(std::move(file)), place_(std::move(place)) {}

bool HfConfig::has(std::string_view key) const {
  return view().contains(key) && !at(key).value().is_null();
}

HfConfig HfConfig::section(std::string_view key) const {
  const auto& value = at(key).value();
  if (!value.is_object()) at(key).refuse("an object");
  return {value, file_, (place_.empty() ? "" : place_ + ".") + std::string(key)};
}

std::int64_t HfConfig::integer(std::string_view key, std::int64_t least, std::int64_t most) const {
  return at(key).integer(least, most);
}

std::int64_t HfConfig::integer_or(std::string_view key, std::int64_t fallback, std::int64_t least,
                                  std::int64_t most) const {
  return has(key) ? integer(key, least, most) : fallback;
}

double HfConfig::number_or(std::string_view key, double fallback) const {
  return has(key) ? at(key).number() : fallback;
}

bool HfConfig::flag_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).value().is_boolean()) at(key).refuse("true or false");
  return at(key).value().get<bool>();
}

std::string HfConfig::text_or(std::string_view key, const std::string& fallback) const {
  return has(key) ? at(key).string() : fallback;
}

std::string HfConfig::word(std::string_view key, const std::string& fallback,
                           const Words& words) const {
  const auto given = text_or(key, fallback);
  std::string accepted;
  for (const auto& [theirs, ours] : words) {
    if (given == theirs) return std::string(ours);
    accepted += (accepted.empty() ? "" : ", ") + std::string(theirs);
  }
  refuse(key, accepted);
}

void HfConfig::expect_flag(std::string_view key, bool expected) const {
  if (flag_or(key, expected) != expected) refuse(key, expected ? "true" : "false");
}

void HfConfig::expect_absent(std::string_view key) const {
  if (!has(key)) return;
  const auto& value = at(key).value();
  const bool nothing = (value.is_structured() && value.empty()) || value == Json(false);
  if (!nothing) refuse(key, "nothing there");
}

void HfConfig::refuse(std::string_view key, std::string_view accepted) const {
  const auto value = view().contains(key) ? at(key).value() : Json();
  fail(ExitCode::kBadInput, "{}: {}{} is {}, which cannot be converted; accepted: {}", file_,
       place_.empty() ? "" : place_ + ".", key,
       shown(value.is_string() ? value.get<std::string>()
                               : value.dump(-1, ' ', true, Json::error_handler_t::replace)),
       accepted);
}

}  // namespace performer::pretrained
