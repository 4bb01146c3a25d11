#include "performer/models/decode_state.h"

#include <ATen/ATen.h>

namespace performer::models {
namespace {

std::int64_t bytes_of(const Tensor& t) {
  return t.defined() ? static_cast<std::int64_t>(t.nbytes()) : 0;
}

Tensor select(const Tensor& t, const Tensor& index) {
  return t.defined() ? t.index_select(0, index) : t;
}

}  // namespace

std::int64_t LayerState::nbytes() const {
  return (favor.defined() ? favor.nbytes() : 0) + bytes_of(keys) + bytes_of(values) + bytes_of(sum);
}

std::int64_t DecodeState::nbytes() const {
  std::int64_t total = 0;
  for (const auto& layer : layers) total += layer.nbytes();
  return total;
}

DecodeState DecodeState::reorder(const Tensor& index) const {
  DecodeState chosen{position, {}, {}};
  chosen.layers.reserve(layers.size());
  for (const auto& layer : layers) {
    chosen.layers.push_back({layer.favor.defined() ? layer.favor.reorder(index) : FavorState{},
                             layer.compared, layer.projection, select(layer.keys, index),
                             select(layer.values, index), select(layer.sum, index)});
  }
  return chosen;
}

}  // namespace performer::models
