#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "performer/models/block.h"
#include "performer/models/class_head.h"
#include "performer/models/decode_state.h"
#include "performer/models/embedding.h"
#include "performer/models/lm_head.h"
#include "performer/models/model_config.h"
#include "performer/ops/rotary/rotary.h"

namespace performer::models {

struct ModelInput {
  Tensor tokens;    // int64 [B, L]
  Tensor key_mask;  // bool [B, L], true = real; undefined: all are. A causal model needs none for
                    // padding at the end, and its exact attention is faster without.
};

/// The one Transformer: embedding, blocks with any attention, a head.
///
/// Parameters are float32 on the CPU and may be moved and converted together (set_data); hidden
/// states have their dtype and device. Random projections are no parameters: functions of
/// (attention.seed, layer, head, draw), float32, following the input's device. Names:
///   embedding.{weight, positions, types, norm.*}, layers.I.{attention_norm,
///   feed_forward_norm}.{weight, bias}, layers.I.attention.{qkv, output}.{weight, bias},
///   layers.I.feed_forward.{input, output}.{weight, bias}, norm.{weight, bias} (pre-norm),
///   output.{weight (untied), bias, transform.{dense, norm}.*}, head.I.{weight, bias};
/// and the buffer rotary.frequencies where they are stored.
class TransformerImpl : public torch::nn::Module {
 public:
  /// Initial weights are a function of (config, seed), the same bits on every machine.
  TransformerImpl(const ModelConfig& config, std::uint64_t seed);

  Tensor hidden(const ModelInput& input);  // [B, L, E]; dropout in train() only
  /// After `layers` blocks, without the last norm: 0 are the embeddings. In eval().
  Tensor hidden_after(const ModelInput& input, std::int64_t layers, const SeeHeads& see = {});
  /// The embeddings, the output of every block, and after the last norm where there is one.
  std::vector<Tensor> all_hidden(const ModelInput& input, const SeeHeads& see = {});
  Tensor logits(const Tensor& hidden);                     // [..., E] -> [..., V]
  Tensor classify(const ModelInput& input);                // [B, classes]
  Tensor match(const ModelInput& a, const ModelInput& b);  // [B, classes], two towers

  /// Takes the next tokens [B, T] of a stream and returns the logits after the last, [B, V]. No
  /// gradients, no dropout. An Error for bidirectional models, for kinds without a streaming state
  /// and for learned positions past max_length.
  Tensor decode(const Tensor& tokens, DecodeState& state);

  /// Whether a CUDA graph of a one-token decode can be replayed: attentions whose state has the
  /// same size at every length.
  bool recordable();
  /// An Error where a stream of `length` tokens has no positions left.
  void check_length(std::int64_t length) const { embedding_->check_length(length); }

  /// Takes draw number `draw` of all random projections.
  void redraw(std::int64_t draw);
  std::int64_t draw() const { return draw_; }

  /// Masks of the coming passes are functions of this key, the layer and the place in it: set one
  /// per step and micro-batch.
  void set_dropout_seed(std::uint64_t step_key) { dropout_seed_ = step_key; }

  const ModelConfig& config() const { return config_; }
  BlockImpl& block(std::int64_t layer) { return *blocks_.at(static_cast<std::size_t>(layer)); }

 private:
  Tensor tower(const ModelInput& input, std::uint64_t number);
  Tensor run(const Tensor& tokens, Pass pass);
  Tensor embed(const Tensor& tokens, Pass& pass);
  Tensor run_blocks(Tensor x, const Pass& pass);
  void store_frequencies();

  ModelConfig config_;
  Embedding embedding_{nullptr};
  std::vector<Block> blocks_;
  Norm norm_{nullptr};      // empty with post-norm
  Mlp head_{nullptr};       // classify, match
  LmHead output_{nullptr};  // lm
  RotaryTables rotary_;
  std::int64_t draw_ = 0;
  std::uint64_t dropout_seed_ = 0;
};
TORCH_MODULE(Transformer);

}  // namespace performer::models
