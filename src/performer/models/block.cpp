#include "performer/models/block.h"

#include <ATen/ATen.h>

namespace performer::models {
namespace {
enum Site : std::uint8_t { kAttention, kFeedForward };
}  // namespace

BlockImpl::BlockImpl(const ModelConfig& config, std::int64_t layer)
    : layer_(static_cast<std::uint64_t>(layer)), pre_norm_(config.norm_position == "pre") {
  attention_norm_ = register_module("attention_norm", Norm(config));
  attention_ = register_module("attention", Attention(config, layer));
  feed_forward_norm_ = register_module("feed_forward_norm", Norm(config));
  feed_forward_ = register_module("feed_forward", FeedForward(config));
}

Tensor BlockImpl::attend(const Tensor& x, const Pass& pass) {
  const Tensor branch = attention_->forward(pre_norm_ ? attention_norm_->forward(x) : x, pass);
  return dropout(branch, pass.dropout.child(layer_).child(kAttention));
}

Tensor BlockImpl::feed(const Tensor& x, const Pass& pass) {
  const Tensor branch = feed_forward_->forward(pre_norm_ ? feed_forward_norm_->forward(x) : x);
  return dropout(branch, pass.dropout.child(layer_).child(kFeedForward));
}

Tensor BlockImpl::forward(const Tensor& x, const Pass& pass) {
  const Tensor attended = x + attend(x, pass);
  if (pre_norm_) return attended + feed(attended, pass);
  const Tensor middle = attention_norm_->forward(attended);
  return feed_forward_norm_->forward(middle + feed(middle, pass));
}

}  // namespace performer::models
