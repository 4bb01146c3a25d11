#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "performer/models/transformer.h"

namespace performer::train {

struct SamplingOptions {
  double temperature = 1;  // 0: the most likely token
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;        // smallest set of tokens with this probability
  std::int64_t seed = 0;
  std::int64_t length = 500;            // most new tokens
  std::int64_t stop = -1;               // a token that ends a sequence; -1: none
  std::vector<std::int64_t> forbidden;  // tokens that are never drawn
};

/// One token from `logits` [V]: a function of (logits, options, sequence, position) alone.
std::int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options,
                          std::int64_t sequence, std::int64_t position);

/// Continues `prompt` by streaming: cost and memory per token do not grow with the length for
/// linear attentions. `on_token` sees each new token; returns false to stop.
/// Sequence number `sequence` names the draw. Returns the new tokens, without `stop`.
std::vector<std::int64_t> generate(models::Transformer& model,
                                   const std::vector<std::int64_t>& prompt,
                                   const SamplingOptions& options, std::int64_t sequence,
                                   const std::function<bool(std::int64_t)>& on_token = {});

}  // namespace performer::train
