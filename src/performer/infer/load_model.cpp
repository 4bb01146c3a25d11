#include "performer/infer/load_model.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "performer/core/error.h"
#include "performer/core/json.h"
#include "performer/core/size.h"
#include "performer/infer/end_tokens.h"
#include "performer/models/model_cost.h"
#include "performer/run/choose_checkpoint.h"
#include "performer/run/finite.h"
#include "performer/run/make_model.h"
#include "performer/run/other_attention.h"
#include "performer/run/precision.h"
#include "performer/run/tensor_file.h"
#include "performer/run/tokenizer_files.h"

namespace performer::infer {

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

// What is wrong in our own file is no mistake of the user.
template <class Read>
void read_own_files(const std::string& folder, Read read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.code() != ExitCode::kUsage) throw;
    fail(ExitCode::kCorrupt, "{}: {}", folder, error.what());
  }
}

}  // namespace

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  const auto chosen = run::choose_checkpoint(path, options.checkpoint);
  const run::Checkpoint& checkpoint = chosen.checkpoint;
  LoadedModel loaded;
  loaded.choice = chosen.text();
  loaded.folder = checkpoint.folder().string();
  loaded.step = checkpoint.step();
  read_own_files(loaded.folder, [&] {
    loaded.recipe = run::recipe_from_json(checkpoint.config(), loaded.folder + "/config.json",
                                          checkpoint.version());
    check(loaded.recipe);
    loaded.space = run::tokenizer_from_files(checkpoint.tokenizer(), loaded.folder);
    loaded.recipe = run::fitted_to(loaded.recipe, loaded.space);  // they must agree
    loaded.ends = end_tokens(checkpoint.tokenizer(), loaded.space, loaded.folder);
    check_file_holds(checkpoint.model_file(), loaded.recipe.model);
  });
  if (!options.attention.empty()) {
    loaded.recipe = run::with_other_attention(loaded.recipe, options.attention);
    loaded.choice += fmt::format(", with {}", fmt::join(options.attention, ", "));
  }
  read_own_files(loaded.folder, [&] {
    loaded.model = run::make_model(loaded.recipe, options.device);
    const auto trainer = parse_json(checkpoint.trainer(), loaded.folder + "/trainer.json");
    loaded.model->redraw(
        JsonView(trainer, loaded.folder + "/trainer.json").at("draw").integer(0, UINT32_MAX));
  });
  const run::Weights weights(loaded.model, at::kFloat);
  run::check_finite(checkpoint.model_file());
  run::load_into(checkpoint.model_file(), run::model_tensors(loaded.model, weights.masters()));
  if (options.precision != at::kFloat) {
    run::Weights(loaded.model, options.precision);  // leaves the copies in the model
  }
  loaded.model->eval();
  return loaded;
}

}  // namespace performer::infer
