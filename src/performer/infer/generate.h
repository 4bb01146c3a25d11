#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "performer/models/transformer.h"

namespace performer::infer {

struct SamplingOptions {
  double temperature = 1;  // 0: the most likely token
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;        // smallest set of tokens with this probability
  std::int64_t seed = 0;
  std::int64_t length = 500;                 // most new tokens
  std::vector<std::int64_t> stop = {};       // tokens that end a sequence, each of them
  std::vector<std::int64_t> forbidden = {};  // tokens that are never drawn
};

/// One token from `logits` [V]: a function of (logits, options, sequence, position) alone.
std::int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options,
                          std::int64_t sequence, std::int64_t position);

struct Generated {
  std::vector<std::vector<std::int64_t>> sequences;  // new tokens, without one of `stop`
  std::string kernel;        // of the last layer's attention in a step; empty: no step was needed
  bool graph = false;        // steps were replayed as a CUDA graph
  std::string eager_reason;  // why not; empty: they were, or there was none
};

/// Continues `prompt` `count` times, as one batch, by streaming: cost and memory per token do not
/// grow with the length for linear attentions. `on_step` sees the number of tokens that every
/// unfinished sequence has; returns false to stop. Sequence i draws as number i.
Generated generate(models::Transformer& model, const std::vector<std::int64_t>& prompt,
                   const SamplingOptions& options, std::int64_t count,
                   const std::function<bool(std::int64_t)>& on_step = {});

}  // namespace performer::infer
