#include "performer/models/attention.h"

#include <ATen/ATen.h>

#include "performer/ops/rotary/rotary.h"

namespace performer::models {

using Uses = AttentionCore::Uses;

AttentionImpl::AttentionImpl(const ModelConfig& config, std::int64_t layer)
    : layer_(layer),
      heads_(config.heads),
      key_heads_(config.key_heads()),
      head_dim_(config.head_dim()) {
  core_ = make_attention_core(config, layer);
  const std::int64_t inner = heads_ * head_dim_;
  const std::int64_t key_parts = core_->uses() == Uses::kSharedQueriesKeysValues ? 1 : 2;
  const std::int64_t rows = inner + key_parts * key_heads_ * head_dim_;
  qkv_ = register_module("qkv", Linear(config.dim, rows, config.qkv_bias));
  register_module("core", core_);
  output_ = register_module("output", Linear(inner, config.dim, config.attention_output_bias));
}

// The heads are views of the one product (of its rotated copy, where positions are rotary).
Heads AttentionImpl::split(const Tensor& x, const Pass& pass) const {
  const std::int64_t total = qkv_->weight.size(0) / head_dim_;
  const Tensor qkv = qkv_->forward(x).view({x.size(0), x.size(1), total, head_dim_});
  const auto take = [](const Tensor& from, std::int64_t first, std::int64_t count) {
    return from.narrow(2, first, count).transpose(1, 2);  // heads first
  };
  const Tensor v = take(qkv, total - key_heads_, key_heads_);
  if (core_->uses() == Uses::kValues) return {{}, {}, v};
  const std::int64_t turning = total - key_heads_;  // queries and keys
  const Tensor qk = pass.turns.defined() ? rotate(qkv.narrow(2, 0, turning), pass.turns) : qkv;
  return {take(qk, 0, heads_), take(qk, turning - key_heads_, key_heads_), v};
}

Tensor AttentionImpl::forward(const Tensor& x, const Pass& pass) {
  const Heads heads = split(x, pass);
  if (pass.see != nullptr) (*pass.see)(layer_, heads);
  const Tensor mixed =
      pass.decode == nullptr
          ? core_->forward(heads, pass.key_mask)
          : core_->decode(heads, pass.decode->layers.at(static_cast<std::size_t>(layer_)),
                          pass.decode->position);
  return output_->forward(mixed.transpose(1, 2).flatten(2));  // [B, L, H D] -> [B, L, E]
}

}  // namespace performer::models
