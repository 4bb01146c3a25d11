#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "performer/models/decode_state.h"
#include "performer/models/model_config.h"

namespace performer::models {

using at::Tensor;

/// The heads of a layer, possibly strided views of one tensor. Kinds that share queries and keys
/// get k == q; kinds that use values alone get v alone.
struct Heads {
  Tensor q, k, v;  // [B, H, L, D]; k and v may have fewer heads: [B, Hkv, L, D]
};

/// How a layer's tokens mix: the part of attention between the projections, one class per kind.
class AttentionCore : public torch::nn::Module {
 public:
  enum class Uses : std::uint8_t { kQueriesKeysValues, kSharedQueriesKeysValues, kValues };

  virtual Uses uses() const { return Uses::kQueriesKeysValues; }

  /// key_mask: bool [B, L] or undefined; returns [B, H, L, D].
  virtual Tensor forward(const Heads& heads, const Tensor& key_mask) = 0;

  /// The same for the next L tokens of a stream of which `position` tokens were seen; causal.
  virtual Tensor decode(const Heads& heads, LayerState& state, std::int64_t position) = 0;

  /// Whether a one-token decode is the same work at the same addresses for every token, so that a
  /// CUDA graph of it can be replayed.
  virtual bool recordable() const { return false; }

  /// Takes the random projections of draw number `draw`; kinds without any do nothing.
  virtual void redraw(std::int64_t draw) {}
};

/// What sums over values of t's type are kept in: float32 for 16 bits, else t's own.
at::ScalarType sum_type(const Tensor& t);

/// The core of layer number `layer`, of the kind its config names.
std::shared_ptr<AttentionCore> make_attention_core(const ModelConfig& config, std::int64_t layer);

}  // namespace performer::models
