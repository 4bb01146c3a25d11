#include "performer/cli/inspect_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "performer/models/length_limit.h"
#include "performer/models/model_cost.h"
#include "performer/ops/last_kernel.h"
#include "performer/report/markup.h"

namespace performer::cli {
namespace {

using Json = nlohmann::ordered_json;
using report::count_text;

// Of which part of the model a parameter is, by its name (models/transformer.h).
std::string part_of(const std::string& name) {
  if (name.starts_with("embedding.")) return "embedding";
  if (name.find(".attention.") != std::string::npos) return "attention";
  if (name.find(".feed_forward.") != std::string::npos) return "feed-forward";
  if (name.starts_with("output.") || name.starts_with("head.")) return "head";
  return "norms";
}

std::vector<std::pair<std::string, std::int64_t>> parts_of(const models::Transformer& model) {
  std::map<std::string, std::int64_t> sums;
  for (const auto& item : model->named_parameters()) {
    sums[part_of(item.key())] += item.value().numel();
  }
  for (const auto& item : model->named_buffers()) {
    if (item.key().find(".features.") != std::string::npos) {
      sums["fitted features"] += item.value().numel();
    }
  }
  std::vector<std::pair<std::string, std::int64_t>> parts;
  for (const char* name :
       {"embedding", "attention", "fitted features", "feed-forward", "norms", "head"}) {
    if (sums.contains(name)) parts.emplace_back(name, sums[name]);
  }
  return parts;
}

std::int64_t total(const models::Transformer& model) {
  std::int64_t sum = 0;
  for (const auto& p : model->parameters()) sum += p.numel();
  return sum;
}

std::int64_t weight_bytes(const models::Transformer& model) {
  std::int64_t sum = 0;
  for (const auto& p : model->parameters()) sum += p.numel() * p.element_size();
  for (const auto& b : model->buffers()) sum += b.numel() * b.element_size();
  return sum;
}

std::string attention_words(const models::ModelConfig& c) {
  std::map<std::string, std::vector<std::int64_t>> layers;
  for (std::int64_t i = 0; i < c.layers; ++i) layers[c.kind_of(i)].push_back(i);
  std::vector<std::string> texts;
  for (const auto& [kind, numbers] : layers) {
    std::string text = kind;
    if (kind == "favor") {
      const auto& a = c.attention;
      text += fmt::format(", {}, {} {} features", a.kernel, a.features, a.projection);
      if (a.near > 0) text += fmt::format(", near field of {} tokens", a.near);
    }
    if (layers.size() > 1) text += fmt::format(" (layers {})", fmt::join(numbers, ", "));
    texts.push_back(text);
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::int64_t state_bytes(const models::ModelConfig& c, std::int64_t length) {
  return models::estimate(c, {.batch = 1, .length = length}).state_bytes;
}

std::string state_text(const models::ModelConfig& c) {
  if (!c.causal) return "none: a bidirectional model reads a sequence at once";
  const auto few = state_bytes(c, 1024), many = state_bytes(c, 65536);
  if (few == many) return bytes_text(few) + " a sequence, at any length";
  return fmt::format("{} a sequence of 1,024 tokens, {} at 65,536", bytes_text(few),
                     bytes_text(many));
}

std::string length_text(const models::ModelConfig& c) {
  const auto limit = models::length_limit(c);
  return limit > 0 ? fmt::format(" up to {} tokens", count_text(limit)) : "";
}

std::string heads_text(const models::ModelConfig& c) {
  auto text = fmt::format("{} heads of {}", c.heads, c.head_dim());
  if (c.key_heads() != c.heads) text += fmt::format(" ({} of keys and values)", c.key_heads());
  return text;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 1 << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (value >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

ModelFacts facts_of(infer::LoadedModel& loaded) {
  const auto& c = loaded.recipe.model;
  ModelFacts facts;
  facts.parts = parts_of(loaded.model);
  std::vector<std::string> parts;
  for (const auto& [name, count] : facts.parts) {
    parts.push_back(fmt::format("{} {}", name, count_text(count)));
  }
  if (!loaded.recipe.description.empty()) {
    facts.lines.emplace_back("model", loaded.recipe.description);
  }
  facts.lines.emplace_back(
      "architecture",
      fmt::format("{}, {} layer{} of width {}, {}, feed-forward {} ({}), {} norms",
                  c.causal ? "causal" : "bidirectional", c.layers, c.layers == 1 ? "" : "s", c.dim,
                  heads_text(c), c.ff_dim, c.activation, c.norm_position + "-" + c.norm));
  facts.lines.emplace_back("tokens",
                           fmt::format("{} kinds ({}), {} positions{}", count_text(c.vocabulary),
                                       loaded.space.kind, c.positions, length_text(c)));
  facts.lines.emplace_back("attention", attention_words(c));
  facts.lines.emplace_back(
      "parameters", fmt::format("{}: {}", count_text(total(loaded.model)), fmt::join(parts, ", ")));
  facts.lines.emplace_back("weights", bytes_text(weight_bytes(loaded.model)));
  facts.lines.emplace_back("state", state_text(c));
  facts.lines.emplace_back(
      "break-even", fmt::format("{} tokens: from there FAVOR+ takes fewer operations than exact "
                                "attention",
                                count_text(models::break_even_length(c))));
  return facts;
}

Json json_of(infer::LoadedModel& loaded) {
  const auto& c = loaded.recipe.model;
  Json parts;
  for (const auto& [name, count] : parts_of(loaded.model)) parts[name] = count;
  Json kinds = Json::array();
  for (std::int64_t i = 0; i < c.layers; ++i) kinds.push_back(c.kind_of(i));
  return {{"checkpoint", loaded.folder},
          {"step", loaded.step},
          {"description", loaded.recipe.description},
          {"causal", c.causal},
          {"layers", c.layers},
          {"dim", c.dim},
          {"heads", c.heads},
          {"key_heads", c.key_heads()},
          {"head_dim", c.head_dim()},
          {"ff_dim", c.ff_dim},
          {"vocabulary", c.vocabulary},
          {"positions", c.positions},
          {"length_limit", models::length_limit(c)},
          {"attention",
           {{"kinds", kinds},
            {"kernel", c.attention.kernel},
            {"features", c.attention.features},
            {"projection", c.attention.projection},
            {"near", c.attention.near}}},
          {"parameters", total(loaded.model)},
          {"parameters_by_part", parts},
          {"weight_bytes", weight_bytes(loaded.model)},
          {"state_bytes", {{"1024", state_bytes(c, 1024)}, {"65536", state_bytes(c, 65536)}}},
          {"break_even_length", models::break_even_length(c)}};
}

std::vector<std::string> kernels_of(models::Transformer& model, const at::Tensor& row) {
  const at::NoGradGuard no_grad;
  const auto layers = static_cast<std::size_t>(model->config().layers);
  std::vector<std::string> kernels;
  set_last_kernel("");
  const auto take = [&] {
    kernels.push_back(last_kernel().empty() ? "torch" : last_kernel());
    set_last_kernel("");
  };
  // Before a layer's attention runs, the layer before has told of its own.
  model->all_hidden({row.unsqueeze(0), {}}, [&](std::int64_t layer, const models::Heads&) {
    if (layer > 0) take();
  });
  if (kernels.size() < layers) take();
  return kernels;
}

}  // namespace performer::cli
