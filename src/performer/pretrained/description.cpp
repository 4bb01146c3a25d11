#include "performer/pretrained/description.h"

#include <algorithm>
#include <utility>

namespace performer::pretrained {
namespace {

// What the first releases of BERT called the weight and the bias of a norm.
std::string with_todays_norm(std::string name) {
  for (const auto& [old, today] : {std::pair{"LayerNorm.gamma", "LayerNorm.weight"},
                                   std::pair{"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (name.ends_with(old)) return name.substr(0, name.size() - std::string(old).size()) + today;
  }
  return name;
}

}  // namespace

std::string Description::own_name(std::string_view name) const {
  const bool prefixed = !prefix.empty() && name.starts_with(prefix);
  std::string own = with_todays_norm(std::string(prefixed ? name.substr(prefix.size()) : name));
  const auto other = other_names.find(own);
  return other == other_names.end() ? own : other->second;
}

std::string Description::file_name(const std::string& own_name) const {
  const bool bare = base || (!bare_prefix.empty() && own_name.starts_with(bare_prefix));
  return bare ? own_name : prefix + own_name;
}

bool Description::ignores(std::string_view own_name) const {
  return std::any_of(ignored_endings.begin(), ignored_endings.end(),
                     [&](const std::string& ending) { return own_name.ends_with(ending); });
}

void PlaceList::linear(const std::string& name, const std::string& parameter, const Shape& shape,
                       bool bias, std::int64_t first_row, Layout layout) {
  places_.push_back({name + ".weight", parameter + ".weight", shape, layout, first_row});
  if (!bias) return;
  const bool transposed = layout == Layout::kTransposed;
  places_.push_back({name + ".bias",
                     parameter + ".bias",
                     {shape.at(transposed ? 1 : 0)},
                     transposed ? Layout::kRows : layout,
                     first_row});
}

void PlaceList::layer_norm(const std::string& name, const std::string& parameter,
                           std::int64_t width) {
  places_.push_back({name + ".weight", parameter + ".weight", {width}});
  places_.push_back({name + ".bias", parameter + ".bias", {width}});
}

}  // namespace performer::pretrained
