#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "performer/models/transformer.h"

namespace performer::models::testing {

inline constexpr std::int64_t kVocabulary = 11;

/// A model that builds and runs in milliseconds. Beside the kinds of attention there are "near",
/// favor with a near field, and "local", the near field alone.
inline ModelConfig tiny(const std::string& kind, bool causal = true) {
  ModelConfig c;
  c.vocabulary = kVocabulary;
  c.max_length = 24;
  c.layers = 2;
  c.dim = 16;
  c.heads = 2;
  c.ff_dim = 32;
  c.causal = causal && kind != "linformer";
  c.dropout = 0;
  const bool near = kind == "near" || kind == "local";
  c.attention.kind = near ? "favor" : kind;
  c.attention.features = kind == "local" ? 0 : 16;
  c.attention.near = near ? 3 : 0;
  c.attention.linformer_k = 8;
  c.attention.lsh_chunk = 4;
  c.attention.lsh_buckets = 4;
  return c;
}

/// A model in evaluation mode with weights large enough for attention to matter.
inline Transformer make(const ModelConfig& config, std::uint64_t seed = 7) {
  Transformer model(config, seed);
  model->eval();
  const at::NoGradGuard no_grad;
  for (auto& p : model->parameters()) {
    if (p.dim() > 1) p.mul_(10);
  }
  return model;
}

/// Tokens 0 ... kVocabulary - 1 without a generator.
inline at::Tensor tokens(std::int64_t batch, std::int64_t length, std::int64_t salt = 0) {
  const auto i = at::arange(batch * length, at::kLong);
  return (i * i * 7 + i * 3 + salt * 5 + i.floor_divide(5))
      .remainder(kVocabulary)
      .view({batch, length});
}

inline at::Tensor all_logits(Transformer& model, const at::Tensor& tokens,
                             const at::Tensor& mask = {}) {
  const at::NoGradGuard no_grad;
  return model->logits(model->hidden({tokens, mask}));
}

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace performer::models::testing
