#include "performer/run/initial_weights.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "performer/core/error.h"
#include "performer/core/safe_text.h"
#include "performer/core/safetensors.h"
#include "performer/run/finite.h"
#include "performer/run/tokenizer_files.h"

namespace performer::run {
namespace {

using Json = nlohmann::ordered_json;

// Keys of `model` that may differ: no tensor's meaning depends on them.
constexpr std::array<std::string_view, 9> kFree = {"attention",     "layer_kinds", "dropout",
                                                   "checkpointing", "max_length",  "head",
                                                   "classes",       "tied",        "causal"};

// The meaning of tokens without the classes, which belong to the head.
Json meaning_of(const std::map<std::string, std::string>& files, const std::string& place) {
  Json all = Json::object();
  for (const auto& [name, bytes] : files) {
    if (name != "tokenizer.json") {
      all[name] = bytes;
      continue;
    }
    all[name] = parse_tokenizer_json(bytes, place);
    if (!all[name].is_object()) {
      fail(ExitCode::kCorrupt, "{}/{}: is no JSON object", place, name);
    }
    all[name].erase("classes");
  }
  return all;
}

bool is_real(safetensors::Dtype dtype) {
  using enum safetensors::Dtype;
  return dtype == kF64 || dtype == kF32 || dtype == kF16 || dtype == kBF16;
}

// Whose weights may be of one side alone.
bool optional(std::string_view name) {
  return name.starts_with("head.") || name.starts_with("output.") ||
         name.find(".core.features.") != std::string_view::npos;
}

}  // namespace

void check_initial(const Checkpoint& from, const Recipe& recipe,
                   const std::map<std::string, std::string>& tokens) {
  const auto place = from.folder().string();
  const auto before = recipe_from_json(from.config(), place + "/config.json", from.version());
  const Json theirs = Json::parse(recipe_to_json(before))["model"];
  const Json ours = Json::parse(recipe_to_json(recipe))["model"];
  std::string differences;
  for (const auto& [key, value] : ours.items()) {
    const bool free = std::find(kFree.begin(), kFree.end(), key) != kFree.end();
    // A table of positions is a tensor, whose shape the length says.
    const bool counts = !free || (key == "max_length" && recipe.model.positions == "learned");
    if (!counts || theirs[key] == value) continue;
    differences +=
        fmt::format("{}model.{} is {} there and {} here", differences.empty() ? "" : "; ", key,
                    theirs[key].dump(), value.dump());
  }
  if (!differences.empty()) {
    fail(ExitCode::kUsage, "--init {}: is another model: {}; take those of its config.json", place,
         differences);
  }
  if (meaning_of(from.tokenizer(), place) != meaning_of(tokens, "the recipe")) {
    fail(
        ExitCode::kUsage,
        "--init {}: its tokens mean something else than those of data.task = \"{}\" here; take its "
        "tokenizer",
        place, recipe.data.task);
  }
}

Taken load_initial(const Checkpoint& from, const NamedTensors& targets) {
  const auto file = from.model_file();
  check_finite(file);
  std::map<std::string, at::Tensor> wanted(targets.begin(), targets.end());
  const safetensors::Reader reader(file);
  NamedTensors shared;
  Taken taken;
  for (const auto& entry : reader.tensors()) {
    const auto found = wanted.find(entry.name);
    const bool fits = found != wanted.end() && found->second.sizes() == entry.shape;
    if (fits && found->second.is_floating_point() && !is_real(entry.dtype)) {
      fail(ExitCode::kCorrupt, "{}: tensor {} is {}, which no weight is", file.string(),
           shown(entry.name), name_of(entry.dtype));
    }
    if (fits) {
      shared.emplace_back(entry.name, found->second);
      wanted.erase(found);
    } else if (optional(entry.name)) {
      taken.left_out.push_back(entry.name);
    } else {
      fail(ExitCode::kUsage, "--init {}: the model has no {} of its shape", file.string(),
           shown(entry.name));
    }
  }
  for (const auto& [name, tensor] : wanted) {
    if (!optional(name)) {
      fail(ExitCode::kUsage, "--init {}: has no {} of the model's shape", file.string(), name);
    }
    taken.drawn.push_back(name);
  }
  taken.tensors = static_cast<std::int64_t>(shared.size());
  visit_tensors(file, [&](const std::string& name, const at::Tensor& tensor) {
    const auto target = std::ranges::find(shared, name, &NamedTensors::value_type::first);
    const at::NoGradGuard no_grad;
    if (target != shared.end()) target->second.copy_(tensor);
  });
  return taken;
}

}  // namespace performer::run
