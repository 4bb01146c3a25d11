#include "performer/train/run_state.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <set>

#include "performer/core/config.h"
#include "performer/core/error.h"

namespace performer::train {

using Json = nlohmann::ordered_json;

Recipe fitted_to(Recipe recipe, const data::TokenSpace& space) {
  const auto fit = [](std::int64_t& value, std::int64_t needed, const char* key) {
    if (value == 0) value = needed;
    if (value != needed) {
      fail(ExitCode::kUsage, "{}: the data need {}, got {}; leave it out", key, needed, value);
    }
  };
  fit(recipe.model.vocabulary, space.vocabulary, "model.vocabulary");
  if (recipe.model.head != "lm") fit(recipe.model.classes, space.num_classes(), "model.classes");
  models::check(recipe.model);
  return recipe;
}

models::Transformer make_model(const Recipe& recipe, at::Device device) {
  models::Transformer model(recipe.model, static_cast<std::uint64_t>(recipe.seed));
  model->to(device);
  return model;
}

NamedTensors model_tensors(const models::Transformer& model, const NamedTensors& masters) {
  auto tensors = masters;
  for (const auto& item : model->named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

std::vector<std::int64_t> never_generated(const data::TokenSpace& space) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t token = 0; token < space.vocabulary; ++token) {
    const bool regular =
        token >= space.first_regular && token < space.first_regular + space.regular;
    if (!regular && token != space.eos) tokens.push_back(token);
  }
  return tokens;
}

std::map<std::string, std::string> tokenizer_files(const data::TokenSpace& space) {
  std::map<std::string, std::string> files = {{"tokenizer.json", space.to_json().dump(2) + "\n"}};
  if (auto bytes = space.model_bytes(); !bytes.empty()) files["tokenizer.model"] = std::move(bytes);
  return files;
}

data::TokenSpace tokenizer_from_files(const std::map<std::string, std::string>& files,
                                      const std::string& folder) {
  const auto json = files.find("tokenizer.json");
  if (json == files.end()) fail(ExitCode::kCorrupt, "{}: has no tokenizer.json", folder);
  const auto model = files.find("tokenizer.model");
  return data::TokenSpace::from_json(Json::parse(json->second),
                                     model == files.end() ? std::string() : model->second);
}

std::string progress_to_json(const Progress& progress, const Json& parts) {
  Json json = {{"step", progress.step},
               {"position", progress.position},
               {"extra_draws", progress.extra_draws},
               {"best_loss", progress.best_loss},
               {"best_step", progress.best_step},
               {"worse", progress.worse},
               {"overfit", progress.overfit},
               {"skipped", progress.skipped}};
  json.update(parts);
  return json.dump(2) + "\n";
}

Progress progress_from_json(const Json& json) {
  Progress progress;
  progress.step = json.at("step");
  progress.position = json.at("position");
  progress.extra_draws = json.at("extra_draws");
  progress.best_loss = json.at("best_loss");
  progress.best_step = json.at("best_step");
  progress.worse = json.at("worse");
  progress.overfit = json.at("overfit");
  progress.skipped = json.at("skipped");
  return progress;
}

void check_same_run(const Recipe& before, const Recipe& now, const std::string& place) {
  static const std::set<std::string> kMayChange = {
      "description",       "train.steps",         "train.seconds",      "train.log_every",
      "train.valid_every", "train.valid_batches", "train.patience",     "train.checkpoint_every",
      "train.keep_last",   "train.keep_every",    "train.sample_every", "train.workers"};
  auto old_recipe = before;
  auto new_recipe = now;
  const auto old_fields = list_fields(old_recipe), new_fields = list_fields(new_recipe);
  for (std::size_t i = 0; i < old_fields.size(); ++i) {
    const auto& name = old_fields[i].name;
    if (kMayChange.contains(name)) continue;
    const auto text = [](const Field& field) {
      return std::visit([](const auto* value) { return Json(*value).dump(); }, field.value);
    };
    if (text(old_fields[i]) != text(new_fields[i])) {
      fail(ExitCode::kUsage,
           "{}: is of another run: {} is {} there and {} here; take another --out, or --restart",
           place, name, text(old_fields[i]), text(new_fields[i]));
    }
  }
}

}  // namespace performer::train
