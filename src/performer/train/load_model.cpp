#include "performer/train/load_model.h"

#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/train/checkpoint.h"
#include "performer/train/precision.h"
#include "performer/train/run_state.h"
#include "performer/train/tensor_file.h"

namespace performer::train {

LoadedModel load_model(const std::string& path, at::Device device, at::ScalarType precision) {
  const auto checkpoint = resolve_checkpoint(path);
  LoadedModel loaded;
  loaded.folder = checkpoint.folder().string();
  loaded.step = checkpoint.step();
  try {
    loaded.recipe = recipe_from_json(checkpoint.config(), loaded.folder + "/config.json");
    check(loaded.recipe);
    loaded.space = tokenizer_from_files(checkpoint.tokenizer(), loaded.folder);
    loaded.recipe = fitted_to(loaded.recipe, loaded.space);  // they must agree
    loaded.model = make_model(loaded.recipe, device);
    loaded.model->redraw(nlohmann::ordered_json::parse(checkpoint.trainer()).at("draw"));
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::kCorrupt, "{}: {}", loaded.folder, error.what());
  } catch (const Error& error) {
    if (error.code() != ExitCode::kUsage) throw;
    fail(ExitCode::kCorrupt, "{}: {}", loaded.folder,
         error.what());  // our own file, not the user's
  }
  const Weights weights(loaded.model, at::kFloat);
  load_into(checkpoint.model_file(), model_tensors(loaded.model, weights.masters()));
  if (precision != at::kFloat) Weights(loaded.model, precision);  // leaves the copies in the model
  loaded.model->eval();
  return loaded;
}

}  // namespace performer::train
