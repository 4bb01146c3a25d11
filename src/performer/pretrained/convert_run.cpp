#include <ATen/ATen.h>

#include "performer/core/error.h"
#include "performer/core/file.h"
#include "performer/core/log.h"
#include "performer/infer/load_model.h"
#include "performer/pretrained/convert.h"
#include "performer/pretrained/new_folder.h"
#include "performer/pretrained/swap.h"
#include "performer/run/checkpoint.h"
#include "performer/run/make_model.h"

namespace performer::pretrained {
namespace {

namespace fs = std::filesystem;

void check_exact(const infer::LoadedModel& from) {
  const auto& model = from.recipe.model;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.kind_of(layer) == "exact") continue;
    fail(ExitCode::kUsage,
         "{}: layer {} has {} attention; features imitate exact attention, so convert a model that "
         "has no other",
         from.folder, layer, model.kind_of(layer));
  }
}

void copy_weights(const models::Transformer& from, const models::Transformer& to) {
  const at::NoGradGuard no_grad;
  auto own = to->named_parameters();
  for (const auto& item : from->named_parameters()) own[item.key()].copy_(item.value());
  auto buffers = to->named_buffers();
  for (const auto& item : from->named_buffers()) {
    if (auto* buffer = buffers.find(item.key())) buffer->copy_(item.value());
  }
}

// Where the weights came from at first, if they were converted before; else this checkpoint.
std::string source_text(const run::Recipe& recipe, const run::Checkpoint& checkpoint) {
  if (!recipe.source.empty()) return recipe.source;
  return checkpoint.folder().filename().string() + " sha256:" + checkpoint.manifest_sha256();
}

// The new file into weights that were set to nothing, against those that it came from.
void check_written(const fs::path& file, const models::Transformer& from) {
  run::visit_tensors(file, [&](const std::string& name, const at::Tensor& tensor) {
    const auto parameters = from->named_parameters();
    const auto* own = parameters.find(name);
    if (own == nullptr || at::equal(*own, tensor)) return;
    fail(ExitCode::kFailure, "{}: tensor {} did not come back as it was; this is a mistake of ours",
         file.string(), name);
  });
}

}  // namespace

bool is_run(const fs::path& folder) {
  return is_there(folder / "manifest.json") || is_there(folder / "latest") ||
         is_there(folder / "best") || is_there(folder / "checkpoints");
}

Converted convert_run(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  const auto loaded = infer::load_model(from.string(), {});
  log_info("{}", loaded.choice);
  check_exact(loaded);
  NewFolder out(to);
  const auto checkpoint = run::Checkpoint::open(loaded.folder);

  Converted result{loaded.recipe, loaded.recipe.description, 0, 0, {}};
  result.recipe.source = source_text(loaded.recipe, checkpoint);
  choose_attention(options, result.recipe.model);
  run::check(result.recipe);
  const models::Transformer model = run::make_model(result.recipe, at::kCPU);
  copy_weights(loaded.model, model);
  Files reports;
  if (options.refine) reports = options.refine(model, result.recipe, loaded.space);

  auto content = content_of(model, result.recipe);
  content.tokenizer = checkpoint.tokenizer();  // and what it was converted from, if it was
  content.reports = std::move(reports);
  const auto kept = checkpoint.folder() / run::kKeptFile;
  if (is_there(kept)) content.kept = run::load_tensors(kept);
  run::write_checkpoint(out.path(), 0, content);
  if (options.check) check_written(out.path() / "model.safetensors", loaded.model);
  out.commit();
  for (const auto& p : model->parameters()) result.parameters += p.numel();
  result.tensors = std::ssize(loaded.model->parameters());
  for (const auto& [name, tensor] : content.kept) result.kept.push_back(name);
  return result;
}

}  // namespace performer::pretrained
