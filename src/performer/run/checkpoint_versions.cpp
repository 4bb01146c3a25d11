#include "performer/run/checkpoint_versions.h"

#include <nlohmann/json.hpp>
#include <span>

#include "performer/run/checkpoint_manifest.h"

namespace performer::run {
namespace {

using Json = nlohmann::ordered_json;

struct LaterKey {
  std::int64_t since;  // the first version of which every checkpoint has it
  const char* place;   // JSON pointer
  const char* value;   // JSON
};

// Version 1 was written by many programs: its later keys came one by one, so any of them may be
// absent.
constexpr LaterKey kLaterInConfig[] = {
    // There was no limit; a run goes on under the default of today.
    {2, "/guard/max_rollbacks", "5"},
    {3, "/model/attention/rounding", R"("none")"},  // projections were float32
    {3, "/model/attention/near", "0"},
    {4, "/source", R"("")"},  // weights were those of the run itself
    {4, "/model/kv_heads", "0"},
    {4, "/model/head_width", "0"},
    {4, "/model/norm_eps", "1e-5"},
    {4, "/model/embedding_norm", "false"},
    {4, "/model/qkv_bias", "true"},
    {4, "/model/attention_output_bias", "true"},
    {4, "/model/ff_bias", "true"},
    {4, "/model/rotary_base", "10000.0"},
    {4, "/model/rotary_frequencies", R"("base")"},
    {4, "/model/token_types", "0"},
    {4, "/model/token_dropout", "-1"},
    {4, "/model/head_transform", "false"},
    {4, "/model/logits_bias", "false"},
};
constexpr LaterKey kLaterInTrainer[] = {
    {2, "/regular", "0"},         // no checkpoint yet that rollbacks go to
    {2, "/rollbacks", "0"},       // none counted
    {2, "/data", "null"},         // not recorded, so any data are taken as those of the run
    {2, "/changes", "[]"},        // a run could not go on with another recipe
    {2, "/reporter/lines", "0"},  // not counted, so none can be missed
    {4, "/init", R"("")"},        // weights were drawn
};

void complete(Json& json, std::span<const LaterKey> keys, std::int64_t version) {
  for (const auto& key : keys) {
    if (version >= key.since) continue;
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
