#include "performer/models/class_head.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

namespace performer::models {

MlpImpl::MlpImpl(const std::vector<std::int64_t>& widths) {
  layers_.reserve(widths.size());
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    layers_.push_back(register_module(std::to_string(i), Linear(widths[i], widths[i + 1])));
  }
}

Tensor MlpImpl::forward(Tensor x) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(i == 0 ? x : at::relu(x));
  }
  return x;
}

Mlp make_class_head(const ModelConfig& config) {
  const std::int64_t width = config.ff_dim;
  if (config.head == "match") {
    return Mlp(std::vector<std::int64_t>{4 * config.dim, width,
                                         std::max<std::int64_t>(width / 2, 1), config.classes});
  }
  return Mlp(std::vector<std::int64_t>{config.dim, width, config.classes});
}

Tensor pool(const Tensor& hidden, const Tensor& key_mask) {
  if (!key_mask.defined()) return hidden.mean(1);
  const Tensor real = key_mask.unsqueeze(-1);  // [B, L, 1]
  const Tensor sum = hidden.masked_fill(real.logical_not(), 0).sum(1);
  return sum / real.sum(1).clamp_min(1).to(sum.scalar_type());
}

Tensor compare(const Tensor& a, const Tensor& b) { return at::cat({a, b, a * b, a - b}, -1); }

}  // namespace performer::models
