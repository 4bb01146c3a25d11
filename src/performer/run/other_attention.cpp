#include "performer/run/other_attention.h"

#include <algorithm>
#include <string_view>

#include "performer/core/config.h"
#include "performer/core/error.h"

namespace performer::run {
namespace {

constexpr std::string_view kSection = "model.attention.";
constexpr std::string_view kKind = "model.attention.kind";
constexpr std::string_view kLayerKinds = "model.layer_kinds";
constexpr std::string_view kNear = "model.attention.near";

// What a kind has as weights of its own, as part of a layer's shape.
std::string own_weights(const models::ModelConfig& c, std::int64_t layer) {
  const auto& kind = c.kind_of(layer);
  if (kind == "lsh") return "queries that are its keys";
  if (kind == "linformer" && c.attention.linformer_projection == "learned") {
    return fmt::format("learned projections of {} x {}", c.attention.linformer_k, c.max_length);
  }
  if (kind == "favor" && c.attention.projection == "fitted") {
    return fmt::format("{} fitted features{}", c.attention.features,
                       c.attention.near > 0 ? " beside a near field" : "");
  }
  return "";
}

bool has_favor(const models::ModelConfig& c) {
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    if (c.kind_of(layer) == "favor") return true;
  }
  return false;
}

void check_same_weights(const models::ModelConfig& before, const models::ModelConfig& after) {
  for (std::int64_t layer = 0; layer < before.layers; ++layer) {
    const auto had = own_weights(before, layer), has = own_weights(after, layer);
    if (had == has) continue;
    fail(ExitCode::kUsage,
         "--set: layer {} was trained as {} attention, whose weights are not those of {} (it has "
         "{}); train it as such",
         layer, before.kind_of(layer), after.kind_of(layer), has.empty() ? "not " + had : has);
  }
}

}  // namespace

Recipe with_other_attention(Recipe recipe, const std::vector<std::string>& assignments) {
  const auto before = recipe.model;
  const auto fields = list_fields(recipe);
  ConfigTree tree;
  for (const auto& assignment : assignments) {
    const auto key = own_name(fields, assignment.substr(0, assignment.find('=')));
    const bool known = std::ranges::any_of(fields, [&](const auto& f) { return f.name == key; });
    if (known && !key.starts_with(kSection) && key != kLayerKinds) {
      fail(ExitCode::kUsage,
           "--set: a trained model can be given another attention (model.attention.*, "
           "model.layer_kinds), got {}, which its weights depend on",
           key);
    }
    tree.set(assignment);
  }
  tree.read_into(fields);
  if (tree.contains(kKind) && !recipe.model.layer_kinds.empty()) {
    fail(ExitCode::kUsage,
         "--set {}: has no effect beside the {} of this run; set those, or both with {}=[]", kKind,
         kLayerKinds, kLayerKinds);
  }
  if (tree.contains(kNear) && !has_favor(recipe.model)) {
    fail(ExitCode::kUsage, "--set {}: has no effect, no layer is of kind favor; set {}=favor too",
         kNear, kKind);
  }
  check(recipe);
  check_same_weights(before, recipe.model);
  return recipe;
}

}  // namespace performer::run
