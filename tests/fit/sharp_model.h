#pragma once

#include <ATen/ATen.h>

#include <string>

#include "performer/data/token_space.h"
#include "performer/data/whole_sequences.h"
#include "performer/models/transformer.h"
#include "tests/models/tiny_model.h"

/// A small model whose attention is worth imitating, and a text for it.
namespace performer::fit {

using models::ModelConfig;
using models::Transformer;

// Bytes in an order that attention can follow.
class Text : public data::WholeSequences {
 public:
  std::int64_t count() const override { return 3; }
  std::int64_t tokens(std::int64_t) const override { return 400; }
  void read(std::int64_t sequence, std::int64_t begin, std::span<std::int64_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto at = begin + static_cast<std::int64_t>(i);
      out[i] = 97 + (at * at + 7 * sequence + at / 5) % 26;
    }
  }
  std::int64_t residues(std::int64_t) const override { return 400; }
  std::string id(std::int64_t) const override { return {}; }
};

inline ModelConfig exact_config(bool causal) {
  ModelConfig config = models::testing::tiny("favor");
  config.vocabulary = data::byte_space().vocabulary;
  config.max_length = 64, config.ff_dim = 64;
  config.dim = 32, config.heads = 4, config.layers = 2;
  config.causal = causal;
  config.attention.kind = "exact";
  return config;
}

// Weights large enough that attention is far from a plain mean.
inline Transformer sharp_model(const ModelConfig& config) {
  Transformer model(config, 1);
  const at::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    if (item.key().ends_with("qkv.weight")) item.value().mul_(4);
  }
  model->eval();
  return model;
}

inline Transformer converted_from(const Transformer& exact, std::int64_t near) {
  ModelConfig config = exact->config();
  config.attention.kind = "favor";
  config.attention.kernel = "loglinear";
  config.attention.projection = "fitted";
  config.attention.features = 16;
  config.attention.near = near;
  Transformer model(config, 1);
  const at::NoGradGuard no_grad;
  auto targets = model->named_parameters();
  for (const auto& item : exact->named_parameters()) targets[item.key()].copy_(item.value());
  model->eval();
  return model;
}

}  // namespace performer::fit
