#include "performer/models/linformer_core.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "performer/core/error.h"
#include "performer/models/random_matrix.h"

namespace performer::models {
namespace {

// [B, H, L, D] -> [B, K, H, D] -> [B, H, K, D]: one product for all heads.
Tensor compress(const Tensor& heads, const Tensor& projection, const Tensor& key_mask) {
  Tensor rows = heads.transpose(1, 2).flatten(2);  // [B, L, E]
  if (key_mask.defined()) rows = rows.masked_fill(key_mask.unsqueeze(-1).logical_not(), 0);
  const Tensor cut = projection.narrow(1, 0, rows.size(1)).to(rows.options());
  return at::matmul(cut, rows).unflatten(2, {heads.size(1), heads.size(3)}).transpose(1, 2);
}

}  // namespace

LinformerCore::LinformerCore(const ModelConfig& config, std::int64_t layer)
    : config_(config.attention), layer_(layer), max_length_(config.max_length) {
  if (config_.scale > 0) scale_ = config_.scale;
  if (config_.linformer_projection == "random") {
    redraw(0);
    return;
  }
  const auto zeros = [&] { return at::zeros({config_.linformer_k, max_length_}); };
  key_projection_ = register_parameter("key_projection", zeros());
  value_projection_ = register_parameter("value_projection", zeros());
}

void LinformerCore::redraw(std::int64_t draw) {
  if (config_.linformer_projection != "random") return;
  const double deviation = 1 / std::sqrt(static_cast<double>(config_.linformer_k));
  key_projection_ = random_matrix(config_.linformer_k, max_length_, {config_, layer_, draw});
  key_projection_.mul_(deviation);
  value_projection_ = key_projection_ * std::exp(-config_.linformer_delta);
}

Tensor LinformerCore::forward(const Heads& heads, const Tensor& key_mask) {
  if (heads.k.size(2) > max_length_) {
    fail(ExitCode::kBadInput,
         "model: linformer's projections end at model.max_length = {}, the sequence has {} tokens",
         max_length_, heads.k.size(2));
  }
  for (Tensor* projection : {&key_projection_, &value_projection_}) {
    // A parameter moves with the module; a random one follows the input.
    if (projection->device() != heads.k.device()) *projection = projection->to(heads.k.device());
  }
  return at::scaled_dot_product_attention(heads.q, compress(heads.k, key_projection_, key_mask),
                                          compress(heads.v, value_projection_, key_mask), {}, 0.0,
                                          false, scale_);
}

Tensor LinformerCore::decode(const Heads& /*heads*/, LayerState& /*state*/,
                             std::int64_t /*position*/) {
  fail(ExitCode::kUsage, "decode: linformer attention has no streaming state; use another kind");
}

}  // namespace performer::models
