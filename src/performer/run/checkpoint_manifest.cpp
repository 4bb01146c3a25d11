#include "performer/run/checkpoint_manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/safe_text.h"
#include "performer/core/sha256.h"

namespace performer::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "performer-checkpoint";
constexpr std::string_view kStepPrefix = "step-";

// The body with the hash of its own text as last member.
std::string sealed(Json body) {
  body["sha256"] = sha256_of(body.dump());
  return body.dump(1) + "\n";
}

Json parse_sealed(const std::string& text, const std::string& file) {
  Json json = parse_json(text, file);
  if (json.is_object()) {
    Json body = json;
    body.erase("sha256");
    if (sealed(std::move(body)) == text) {
      return json;
    }
  }
  fail(ExitCode::kCorrupt, "{}: damaged: its text does not match its own hash", file);
}

Manifest read_fields(const JsonView& json, const std::string& file) {
  Manifest manifest;
  manifest.step = json.at("step").integer(0);
  std::set<std::string> names;
  const JsonView files = json.at("files");
  for (std::size_t i = 0; i < files.size(); ++i) {
    const JsonView entry = files.at(i);
    ManifestFile item{entry.at("name").string(), entry.at("bytes").integer(0),
                      entry.at("sha256").string()};
    if (!plain_file_name(item.name) || !names.insert(item.name).second) {
      fail(ExitCode::kCorrupt, "{}: lists a file name that no checkpoint has", file);
    }
    manifest.files.push_back(std::move(item));
  }
  return manifest;
}

}  // namespace

bool plain_file_name(const std::string& name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string::npos && name != "manifest.json";
}

std::string manifest_text(const Manifest& manifest) {
  Json json;
  json["format"] = kFormat;
  json["version"] = manifest.version;
  json["step"] = manifest.step;
  json["files"] = Json::array();
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return sealed(std::move(json));
}

Manifest parse_manifest(const std::string& text, const std::string& file) {
  const Json json = parse_sealed(text, file);
  const JsonView view(json, file);
  const Json& format = view.at("format").value();
  const Json& version = view.at("version").value();
  const bool known = version.is_number_integer() && version >= 1 && version <= kCheckpointVersion;
  if (format != kFormat || !known) {
    fail(ExitCode::kBadInput,
         "{}: checkpoint format {} of version {}; this program reads {} of 1 to {}", file,
         shown(format.dump()), shown(version.dump()), kFormat, kCheckpointVersion);
  }
  Manifest manifest = read_fields(view, file);
  manifest.version = version.get<std::int64_t>();
  return manifest;
}

std::string pointer_text(const Pointer& pointer) {
  const std::string lines =
      fmt::format("{}\n{}\n", step_name(pointer.step), pointer.manifest_sha256);
  return lines + sha256_of(lines) + "\n";
}

Pointer parse_pointer(const std::string& text, const std::string& file) {
  Pointer pointer;
  const auto line = text.find('\n');
  const auto step = parse_step_name(std::string_view(text).substr(0, line));
  if (step && line != std::string::npos) {
    pointer.step = *step;
    pointer.manifest_sha256 = text.substr(line + 1, 64);
  }
  if (!step || pointer_text(pointer) != text) {
    fail(ExitCode::kCorrupt, "{}: damaged: its text does not match its own hash", file);
  }
  return pointer;
}

std::string step_name(std::int64_t step) { return fmt::format("{}{:09d}", kStepPrefix, step); }

std::optional<std::int64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kStepPrefix.size());
  std::int64_t step = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (result.ec != std::errc() || step < 0 || step_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

}  // namespace performer::run
