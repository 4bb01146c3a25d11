#include "performer/pretrained/convert.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "performer/core/error.h"
#include "performer/pretrained/describe.h"
#include "performer/pretrained/match.h"
#include "performer/pretrained/new_folder.h"
#include "performer/pretrained/source.h"
#include "performer/pretrained/swap.h"
#include "performer/pretrained/tensor_views.h"
#include "performer/pretrained/tokenizer.h"
#include "performer/run/checkpoint_writer.h"
#include "performer/run/make_model.h"
#include "performer/run/tokenizer_files.h"

namespace performer::pretrained {
namespace {

namespace fs = std::filesystem;

Facts facts_of(const TensorFolder& folder) {
  Facts facts;
  for (const auto& [name, tensor] : folder.tensors()) {
    facts.frequencies = facts.frequencies || name.ends_with("rotary_embeddings.inv_freq");
  }
  return facts;
}

// config.json may ask for what no model can be.
void check_possible(models::ModelConfig model, const std::string& file) {
  model.attention.kind = "exact";  // as it comes
  try {
    models::check(model);
  } catch (const Error& error) {
    fail(ExitCode::kCorrupt, "{}: describes no model: {}", file, error.what());
  }
}

run::Recipe recipe_of(const Description& d, const Source& source) {
  run::Recipe recipe;
  recipe.description = d.architecture + " of " + source.folder;
  recipe.source = source.text();
  recipe.model = d.model;
  recipe.data.task = "text";
  recipe.data.objective = d.model.causal ? "causal" : "masked";
  recipe.data.length = std::min<std::int64_t>(d.model.max_length, 1024);
  return recipe;
}

run::NamedTensors read_kept(const Match& match) {
  run::NamedTensors kept;
  for (const auto& [name, tensor] : match.kept) {
    const at::Tensor values = at::empty(tensor.entry->shape, at::kFloat);
    if (values.dim() > 0) read_into(tensor, values);
    kept.emplace_back(name, values);
  }
  return kept;
}

void read_weights(const Match& match, const Description& d, const Parameters& parameters) {
  for (const auto& [place, tensor] : match.places) {
    read_into(tensor, view_of(parameters, *place, d.model.head_dim()));
  }
  for (const auto& [a, b] : match.twins) check_twins(a, b);
}

// What was written is what was read: the new file into the same parameters, and from there the way
// back. No second model is made.
void check_written(const fs::path& file, const Match& match, const Parameters& parameters,
                   std::int64_t head_dim) {
  for (const auto& [name, tensor] : parameters) tensor.zero_();
  const safetensors::Reader written(file);
  for (const auto& entry : written.tensors()) {
    const auto own = parameters.find(entry.name);
    if (own == parameters.end()) continue;  // fitted features: no folder has them
    read_into({&written, &entry, file.string()}, own->second);
  }
  for (const auto& [place, tensor] : match.places) {
    if (holds(tensor, view_of(parameters, *place, head_dim))) continue;
    fail(ExitCode::kFailure, "{}: tensor {} did not come back as it was; this is a mistake of ours",
         tensor.file, place->name);
  }
}

}  // namespace

Converted convert(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  const HfConfig config(read_config_text(from), (from / "config.json").string());
  const TensorFolder folder(from);
  const Description d = describe(config, facts_of(folder));
  check_possible(d.model, (from / "config.json").string());
  const Match match = match_tensors(d, folder);
  NewFolder out(to);  // known before the work begins

  const Source source = source_of(from, d.architecture, folder.files());
  Converted result{recipe_of(d, source), d.architecture, 0, std::ssize(match.places), {}};
  choose_attention(options, result.recipe.model);
  run::check(result.recipe);
  const models::Transformer model = run::make_model(result.recipe, at::kCPU);
  const auto parameters = parameters_of(model);
  check_covered(d, parameters);
  read_weights(match, d, parameters);

  const auto space = token_space_of(config, from, d.model.vocabulary);
  Files reports;
  if (options.refine) reports = options.refine(model, result.recipe, space);
  auto content = content_of(model, result.recipe);
  content.kept = read_kept(match);
  content.tokenizer = run::tokenizer_files(space);
  content.tokenizer.merge(source.checkpoint_files());
  content.reports = std::move(reports);
  run::write_checkpoint(out.path(), 0, content);
  if (options.check) {
    check_written(out.path() / "model.safetensors", match, parameters, d.model.head_dim());
  }
  out.commit();
  for (const auto& p : model->parameters()) result.parameters += p.numel();
  for (const auto& [name, tensor] : match.kept) result.kept.push_back(name);
  return result;
}

}  // namespace performer::pretrained
