#include "performer/train/load_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/size.h"
#include "performer/models/model_cost.h"
#include "performer/train/choose_checkpoint.h"
#include "performer/train/finite.h"
#include "performer/train/precision.h"
#include "performer/train/run_state.h"
#include "performer/train/tensor_file.h"

namespace performer::train {

namespace {

// Before memory is taken for what config.json says.
void check_file_holds(const std::filesystem::path& file, const models::ModelConfig& model) {
  const auto parameters = models::estimate(model, {.batch = 1, .length = 1}).parameters;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(file));
  if ((Size(parameters) * 4).value() <= bytes) return;
  fail(ExitCode::kCorrupt,
       "{}: {} bytes are too few for the {} parameters of the model in config.json", file.string(),
       bytes, parameters);
}

}  // namespace

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  const auto chosen = choose_checkpoint(path, options.checkpoint);
  const Checkpoint& checkpoint = chosen.checkpoint;
  LoadedModel loaded;
  loaded.choice = chosen.text();
  loaded.folder = checkpoint.folder().string();
  loaded.step = checkpoint.step();
  try {
    loaded.recipe = recipe_from_json(checkpoint.config(), loaded.folder + "/config.json");
    check(loaded.recipe);
    loaded.space = tokenizer_from_files(checkpoint.tokenizer(), loaded.folder);
    loaded.recipe = fitted_to(loaded.recipe, loaded.space);  // they must agree
    check_file_holds(checkpoint.model_file(), loaded.recipe.model);
    loaded.model = make_model(loaded.recipe, options.device);
    const auto trainer = parse_json(checkpoint.trainer(), loaded.folder + "/trainer.json");
    loaded.model->redraw(
        JsonView(trainer, loaded.folder + "/trainer.json").at("draw").integer(0, UINT32_MAX));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kUsage) throw;
    fail(ExitCode::kCorrupt, "{}: {}", loaded.folder,
         error.what());  // our own file, not the user's
  }
  const Weights weights(loaded.model, at::kFloat);
  check_finite(checkpoint.model_file());
  load_into(checkpoint.model_file(), model_tensors(loaded.model, weights.masters()));
  if (options.precision != at::kFloat) {
    Weights(loaded.model, options.precision);  // leaves the copies in the model
  }
  loaded.model->eval();
  return loaded;
}

}  // namespace performer::train
