#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "performer/models/attention.h"
#include "performer/models/feed_forward.h"
#include "performer/models/model_config.h"
#include "performer/models/norm.h"
#include "performer/models/pass.h"

namespace performer::models {

/// One layer: attention and feed-forward, each a residual branch with dropout at its end.
///   pre:  x + branch(norm(x))        post:  norm(x + branch(x))
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const ModelConfig& config, std::int64_t layer);
  Tensor forward(const Tensor& x, const Pass& pass);  // [B, L, E] -> [B, L, E]

  /// The branches of a pre-norm block, norm included, without the sum.
  Tensor attend(const Tensor& x, const Pass& pass);
  Tensor feed(const Tensor& x, const Pass& pass);

  AttentionCore& core() { return attention_->core(); }

 private:
  std::uint64_t layer_;
  bool pre_norm_;
  Norm attention_norm_{nullptr}, feed_forward_norm_{nullptr};
  Attention attention_{nullptr};
  FeedForward feed_forward_{nullptr};
};
TORCH_MODULE(Block);

}  // namespace performer::models
