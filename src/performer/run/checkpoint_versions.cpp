#include "performer/run/checkpoint_versions.h"

#include <nlohmann/json.hpp>
#include <span>

#include "performer/run/checkpoint_manifest.h"

namespace performer::run {
namespace {

using Json = nlohmann::ordered_json;

struct LaterKey {
  const char* place;  // JSON pointer
  const char* value;  // JSON
};

// Version 1 was written by many programs: these keys came one by one, so any of them may be absent.
constexpr LaterKey kLaterInConfig[] = {
    {"/guard/max_rollbacks", "5"},  // there was no limit; a run goes on under the default of today
};
constexpr LaterKey kLaterInTrainer[] = {
    {"/regular", "0"},         // no checkpoint yet that rollbacks go to
    {"/rollbacks", "0"},       // none counted
    {"/data", "null"},         // not recorded, so any data are taken as those of the run
    {"/changes", "[]"},        // a run could not go on with another recipe
    {"/reporter/lines", "0"},  // not counted, so none can be missed
};

void complete(Json& json, std::span<const LaterKey> keys, std::int64_t version) {
  if (version >= kCheckpointVersion) return;
  for (const auto& key : keys) {
    const Json::json_pointer place(key.place);
    const auto section = place.parent_pointer();
    if (json.contains(place) || !json.contains(section) || !json[section].is_object()) continue;
    json[place] = Json::parse(key.value);
  }
}

}  // namespace

void complete_config(Json& config, std::int64_t version) {
  complete(config, kLaterInConfig, version);
}

void complete_trainer(Json& trainer, std::int64_t version) {
  complete(trainer, kLaterInTrainer, version);
}

}  // namespace performer::run
