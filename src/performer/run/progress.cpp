#include "performer/run/progress.h"

#include <nlohmann/json.hpp>

namespace performer::run {

using Json = nlohmann::ordered_json;

std::string progress_to_json(const Progress& progress, const Json& parts) {
  Json json = {{"step", progress.step},
               {"position", progress.position},
               {"extra_draws", progress.extra_draws},
               {"best_loss", progress.best_loss},
               {"best_step", progress.best_step},
               {"worse", progress.worse},
               {"overfit", progress.overfit},
               {"skipped", progress.skipped},
               {"regular", progress.regular},
               {"rollbacks", progress.rollbacks},
               {"init", progress.init},
               {"data", Json::object()},
               {"changes", to_json(progress.changes)}};
  for (const auto& [split, data] : progress.data) {
    json["data"][split] = {{"samples", data.samples}, {"sha256", data.sha256}};
  }
  json.update(parts);
  return json.dump(2) + "\n";
}

Progress progress_from_json(const JsonView& json, std::int64_t step, std::int64_t version) {
  // Far beyond every run, and far enough from the end of what an integer holds to count on.
  constexpr std::int64_t kMostRows = std::int64_t{1} << 60, kMostDraws = std::int64_t{1} << 30;
  Progress progress;
  progress.step = json.at("step").integer(step, step);
  progress.position = json.at("position").integer(0, kMostRows);
  progress.extra_draws = json.at("extra_draws").integer(0, kMostDraws);
  progress.best_loss = json.at("best_loss").number();
  progress.best_step = json.at("best_step").integer(0, step);
  progress.worse = json.at("worse").integer(0);
  progress.overfit = json.at("overfit").integer(0);
  progress.skipped = json.at("skipped").integer(0);
  progress.regular = json.at("regular").integer(0, step);
  progress.rollbacks = json.at("rollbacks").integer(0);
  progress.init = json.at("init").string();
  const auto data = json.at("data");
  if (version > 1 || !data.value().is_null()) {  // null: not recorded then
    data.at("train");
    for (const auto& item : data.value().items()) {
      const auto split = data.at(item.key());
      progress.data[item.key()] = {split.at("samples").integer(0), split.at("sha256").string()};
    }
  }
  progress.changes = changes_from_json(json.at("changes"));
  return progress;
}

}  // namespace performer::run
