#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "performer/models/attention_core.h"
#include "performer/models/linear.h"
#include "performer/models/model_config.h"
#include "performer/models/pass.h"

namespace performer::models {

/// Multi-head self-attention of any kind: one GEMM to queries, keys and values, rotary positions,
/// the kind's core on views of its result, one GEMM back.
/// Parameters: qkv.{weight [(H + 2 Hkv) D, E], bias} (rows: queries, keys, values, each head after
/// head; kinds that share queries and keys have no rows of keys), output.{weight [E, H D], bias},
/// core.* of the kind.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(const ModelConfig& config, std::int64_t layer);
  Tensor forward(const Tensor& x, const Pass& pass);  // [B, L, E] -> [B, L, E]
  AttentionCore& core() { return *core_; }

 private:
  Heads split(const Tensor& x, const Pass& pass) const;

  std::int64_t layer_, heads_, key_heads_, head_dim_;
  std::shared_ptr<AttentionCore> core_;
  Linear qkv_{nullptr}, output_{nullptr};
};
TORCH_MODULE(Attention);

}  // namespace performer::models
