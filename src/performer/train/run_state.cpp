#include "performer/train/run_state.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/machine_memory.h"
#include "performer/core/size.h"
#include "performer/models/model_cost.h"
#include "performer/train/checkpoint.h"

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
  check(recipe);
  return recipe;
}

// Most systems grant more memory than they have, and end the program when it is used.
void check_fits(const models::ModelConfig& model) {
  const auto parameters = models::estimate(model, {.batch = 1, .length = 1}).parameters;
  const Size projections = model.attention.kind == "favor"
                               ? Size(model.layers) * model.dim * model.attention.features
                               : 0;  // [heads, features, head width] a layer
  const Size bytes = (parameters + projections) * 4;
  if (bytes.value() <= machine_memory()) return;
  constexpr double kGiB = 1 << 30;
  fail(ExitCode::kOutOfMemory,
       "model: its {} parameters take {:.1f} GiB, this machine has {:.1f}; lower model.layers "
       "({}), model.dim ({}) or model.vocabulary ({})",
       parameters, static_cast<double>(bytes.value()) / kGiB,
       static_cast<double>(machine_memory()) / kGiB, model.layers, model.dim, model.vocabulary);
}

models::Transformer make_model(const Recipe& recipe, at::Device device) {
  check_fits(recipe.model);
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
               {"data", Json::object()},
               {"changes", to_json(progress.changes)}};
  for (const auto& [split, data] : progress.data) {
    json["data"][split] = {{"samples", data.samples}, {"sha256", data.sha256}};
  }
  json.update(parts);
  return json.dump(2) + "\n";
}

Progress progress_from_json(const JsonView& json, std::int64_t step) {
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
  // Checkpoints of older versions have none of these.
  if (json.contains("regular")) progress.regular = json.at("regular").integer(0, step);
  if (json.contains("rollbacks")) progress.rollbacks = json.at("rollbacks").integer(0);
  if (json.contains("data")) {
    const auto data = json.at("data");
    data.at("train");
    for (const auto& item : data.value().items()) {
      const auto split = data.at(item.key());
      progress.data[item.key()] = {split.at("samples").integer(0), split.at("sha256").string()};
    }
  }
  if (json.contains("changes")) progress.changes = changes_from_json(json.at("changes"));
  return progress;
}

}  // namespace performer::train
