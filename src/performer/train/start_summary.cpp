#include "performer/train/start_summary.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <string>

#include "performer/core/log.h"
#include "performer/data/whole_sequences.h"
#include "performer/data/windows.h"
#include "performer/ops/last_kernel.h"
#include "performer/run/precision.h"
#include "performer/train/dry_run.h"

namespace performer::train {
namespace {

// Rows of which the baselines are taken: a tenth of a second, and the third digit is sure.
constexpr std::int64_t kBaselineRows = 4096;

// 1,234,567
std::string grouped(std::int64_t number) {
  const auto digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string amount(const data::Dataset& dataset) {
  const auto* whole = dataset.whole();
  if (whole == nullptr) return fmt::format("{} samples", grouped(dataset.size()));
  const bool blocks = whole->count() != dataset.size();
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < whole->count(); ++i) tokens += whole->residues(i);
  const char* unit = dataset.space().kind == "protein"  ? "residues"
                     : dataset.space().kind == "pixels" ? "values"
                                                        : "tokens";
  auto text = blocks
                  ? fmt::format("{} {} in {} rows", grouped(tokens), unit, grouped(dataset.size()))
                  : fmt::format("{} sequence{}, {} {}", grouped(whole->count()),
                                whole->count() == 1 ? "" : "s", grouped(tokens), unit);
  if (const auto notes = whole->notes(); !notes.empty()) text += "; " + notes;
  return text;
}

std::string source_of(const data::DataConfig& config, data::Split split) {
  if (config.task == "recall") return "made from data.seed";
  const auto path = data::to_string(data::paths_of(config, split));
  return path.empty() ? "rows of data.train that are marked so" : path;
}

// Rows of proteins are often crops; those of images are hardly ever meant to be.
void warn_of_crops(const data::Dataset& images) {
  const auto left_out = data::coverage(images, 1).left_out;
  if (left_out == 0) return;
  log_warning(
      "data.length: a row of {} tokens holds a part of an image: {} of its {} values are left out; "
      "take data.length = {}, unless crops are meant",
      images.length(), left_out, images.whole()->residues(0), images.length() + left_out);
}

void log_data(const Start& start) {
  const auto& config = start.recipe.data;
  log_info("data      {}: {}", source_of(config, data::Split::kTrain), amount(start.train));
  if (config.task == "pixels") warn_of_crops(start.train);
  if (start.valid == nullptr) return;
  log_info("valid     {}: {}", source_of(config, data::Split::kValid),
           amount(start.valid->dataset()));
}

std::string attention_text(const models::ModelConfig& model) {
  if (!model.layer_kinds.empty()) return "mixed";
  const auto& a = model.attention;
  if (a.kind != "favor") return a.kind;
  if (a.features == 0 && a.near > 0) return fmt::format("favor near {} alone", a.near);
  if (a.features == 0) return fmt::format("favor {} without projection", a.kernel);
  const auto far = fmt::format("favor {}, {} {} features", a.kernel, a.features, a.projection);
  return a.near > 0 ? fmt::format("{} beyond near {}", far, a.near) : far;
}

void log_model(const Start& start, std::int64_t parameters) {
  const auto& m = start.recipe.model;
  log_info("model     {} parameters: {} layers of width {}, {} heads, {}, {} positions, {}",
           grouped(parameters), m.layers, m.dim, m.heads, attention_text(m),
           m.positions == "none" ? "no" : m.positions, m.causal ? "causal" : "bidirectional");
}

// Rows may be allowed to be far longer than any is; the implementation is the same from here on.
constexpr std::int64_t kAskedLength = 4096;

// The implementation that serves the first FAVOR+ layer, asked by a call of a row's shape.
std::string kernel_of(const Start& start) {
  const auto& model = start.recipe.model;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const auto& kind = model.kind_of(layer);
    if (kind != "favor" && kind != "linear") continue;
    const at::NoGradGuard no_grad;
    const auto options =
        at::TensorOptions(run::parse_precision(start.recipe.train.precision)).device(start.device);
    const auto length = std::min(start.recipe.data.length, kAskedLength);
    const auto head = at::zeros({1, model.heads, length, model.head_dim()}, options);
    auto transformer = start.model;
    transformer->block(layer).core().forward({head, head, head}, {});
    return last_kernel();
  }
  return "torch's own operators";
}

// A word of a line is not worth the run.
std::string try_kernel_of(const Start& start) {
  try {
    return kernel_of(start);
  } catch (const std::exception&) {
    return "what its first step will tell";
  }
}

void log_device(const Start& start) {
  const auto threads = start.device.is_cpu() ? fmt::format(", {} thread{}", at::get_num_threads(),
                                                           at::get_num_threads() == 1 ? "" : "s")
                                             : std::string();
  log_info("device    {}{}, {}; attention by {}", start.device.str(), threads,
           start.recipe.train.precision, try_kernel_of(start));
}

StartBaselines baselines(const Start& start) {
  const auto counts = data::count_targets(start.train, kBaselineRows);
  const auto& space = start.train.space();
  return {data::baselines_of(space, data::Ends::kApart, counts, counts),
          data::baselines_of(space, data::Ends::kCounted, counts, counts)};
}

}  // namespace

StartBaselines log_start(const Start& start) {
  const auto plan = plan_of(start.recipe, start.train);
  log_data(start);
  log_model(start, plan.parameters);
  log_device(start);
  log_info("memory    {} of weights and optimizer, about {} of activations", plan.weight_text(),
           plan.activation_text());
  const auto found = baselines(start);
  const bool ends = found.apart.choices != found.counted.choices;
  log_info("baseline  perplexity {:.2f} uniform, {:.2f} by frequencies{}",
           found.apart.uniform.perplexity, found.apart.empirical.perplexity,
           ends ? fmt::format(" without EOS; {:.2f} and {:.2f} with it, as in the loss",
                              found.counted.uniform.perplexity, found.counted.empirical.perplexity)
                : std::string());
  return found;
}

}  // namespace performer::train
