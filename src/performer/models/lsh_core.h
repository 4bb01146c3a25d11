#pragma once

#include "performer/models/attention_core.h"

namespace performer::models {

/// Reformer's attention: queries are keys, and a token attends within its hash bucket.
///
/// A round hashes by random rotations, argmax [x R, -x R]; a bucket's tokens, in their order, form
/// chunks of lsh_chunk, and a token sees its own chunk and the one before it. Rounds are joined by
/// the weight of their sums. Keys have unit length; a token sees itself only when there is no other
/// (Kitaev et al. 2020). Different from there: chunks never cross buckets, so the tokens that one
/// sees depend on earlier tokens alone, and causal means causal.
/// O(hashes L chunk D) time. Hashes are a function of (seed, layer, draw).
class LshCore : public AttentionCore {
 public:
  LshCore(const ModelConfig& config, std::int64_t layer);
  Uses uses() const override { return Uses::kSharedQueriesKeysValues; }
  Tensor forward(const Heads& heads, const Tensor& key_mask) override;
  Tensor decode(const Heads& heads, LayerState& state, std::int64_t position) override;
  void redraw(std::int64_t draw) override;

 private:
  std::int64_t num_buckets(std::int64_t length) const;
  Tensor hash(const Tensor& q, const Tensor& key_mask);

  AttentionConfig config_;
  std::int64_t layer_, head_dim_;
  bool causal_;
  Tensor rotations_;  // [hashes, D, half of the most buckets] float32
};

}  // namespace performer::models
