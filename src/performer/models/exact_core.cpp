#include "performer/models/exact_core.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "performer/ops/exact/attention.h"

namespace performer::models {
namespace {

// Rows `position` ... `position + length - 1` of the lower triangle: bool [length, keys].
Tensor causal_mask(std::int64_t position, std::int64_t length, at::Device device) {
  return at::ones({length, position + length}, at::TensorOptions(at::kBool).device(device))
      .tril(position);
}

// Writes `rows` behind the first `position` of the cache, which grows by doubling.
void append(Tensor& cache, const Tensor& rows, std::int64_t position) {
  const std::int64_t needed = position + rows.size(2);
  if (!cache.defined() || cache.size(2) < needed) {
    auto sizes = rows.sizes().vec();
    sizes[2] = std::max<std::int64_t>(needed, cache.defined() ? 2 * cache.size(2) : 64);
    Tensor grown = at::empty(sizes, rows.options());
    if (position > 0) grown.narrow(2, 0, position).copy_(cache.narrow(2, 0, position));
    cache = grown;
  }
  cache.narrow(2, position, rows.size(2)).copy_(rows);
}

}  // namespace

ExactCore::ExactCore(const ModelConfig& config)
    : causal_(config.causal), grouped_(config.key_heads() != config.heads) {
  if (config.attention.scale > 0) scale_ = config.attention.scale;
}

Tensor ExactCore::forward(const Heads& heads, const Tensor& key_mask) {
  if (causal_ && key_mask.defined()) {
    // The fused kernels take one or the other; both together would be a mask of L x L per sequence.
    ExactOptions options;
    options.causality = Causality::kCausal;
    options.scale = scale_;
    options.key_mask = key_mask;
    return exact_attention(heads.q, heads.k, heads.v, options);
  }
  std::optional<Tensor> mask;
  if (key_mask.defined()) mask = key_mask.unsqueeze(1).unsqueeze(1);  // [B, 1, 1, L]
  return at::scaled_dot_product_attention(heads.q, heads.k, heads.v, mask, 0.0, causal_, scale_,
                                          grouped_);
}

Tensor ExactCore::decode(const Heads& heads, LayerState& state, std::int64_t position) {
  append(state.keys, heads.k, position);
  append(state.values, heads.v, position);
  const std::int64_t length = heads.q.size(2), seen = position + length;
  std::optional<Tensor> mask;
  if (length > 1 && position > 0) mask = causal_mask(position, length, heads.q.device());
  return at::scaled_dot_product_attention(heads.q, state.keys.narrow(2, 0, seen),
                                          state.values.narrow(2, 0, seen), mask, 0.0,
                                          length > 1 && position == 0, scale_, grouped_);
}

}  // namespace performer::models
