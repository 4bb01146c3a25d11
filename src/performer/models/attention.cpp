#include "performer/models/attention.h"

#include <ATen/ATen.h>

#include "performer/ops/rotary/rotary.h"

namespace performer::models {

using Uses = AttentionCore::Uses;

AttentionImpl::AttentionImpl(const ModelConfig& config, std::int64_t layer)
    : layer_(layer), heads_(config.heads), head_dim_(config.head_dim()) {
  core_ = make_attention_core(config, layer);
  const std::int64_t parts = core_->uses() == Uses::kSharedQueriesKeysValues ? 2 : 3;
  qkv_ = register_module("qkv", Linear(config.dim, parts * config.dim));
  register_module("core", core_);
  output_ = register_module("output", Linear(config.dim, config.dim));
}

// The heads are views of the one product (of its rotated copy, where positions are rotary).
Heads AttentionImpl::split(const Tensor& x, const Pass& pass) const {
  const std::int64_t parts = qkv_->weight.size(0) / (heads_ * head_dim_);
  const Tensor qkv = qkv_->forward(x).view({x.size(0), x.size(1), parts, heads_, head_dim_});
  const auto heads_first = [](const Tensor& t) { return t.transpose(1, 2); };
  if (core_->uses() == Uses::kValues) return {{}, {}, heads_first(qkv.select(2, parts - 1))};
  Tensor q, k, v;
  if (pass.turns.defined()) {
    const Tensor turned = rotate(qkv.narrow(2, 0, parts - 1), pass.turns);
    q = turned.select(2, 0), k = turned.select(2, parts - 2), v = qkv.select(2, parts - 1);
  } else {
    const auto views = qkv.unbind(2);
    q = views.front(), k = views[views.size() - 2], v = views.back();
  }
  return {heads_first(q), heads_first(k), heads_first(v)};
}

Tensor AttentionImpl::forward(const Tensor& x, const Pass& pass) {
  const Heads heads = split(x, pass);
  const Tensor mixed =
      pass.decode == nullptr
          ? core_->forward(heads, pass.key_mask)
          : core_->decode(heads, pass.decode->layers.at(static_cast<std::size_t>(layer_)),
                          pass.decode->position);
  return output_->forward(mixed.transpose(1, 2).flatten(2));  // [B, L, H, D] -> [B, L, E]
}

}  // namespace performer::models
