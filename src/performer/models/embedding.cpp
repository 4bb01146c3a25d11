#include "performer/models/embedding.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "performer/core/error.h"

namespace performer::models {
namespace {

// Row p: sin(p r_0) ... sin(p r_{E/2-1}), cos(p r_0) ..., r_i = 10000^(-2i/E), for positions [L]
// float64.
Tensor sinusoid_rows(const Tensor& positions, std::int64_t dim) {
  const Tensor rate = at::pow(10000.0, at::arange(0, dim, 2, positions.options()).div(-dim));
  const Tensor angle = at::outer(positions, rate);
  return at::cat({angle.sin(), angle.cos()}, 1);
}

// ESM-2 was trained with 15 % of the tokens chosen and 80 % of those masked, and scales what is left
// of the embeddings as dropout would: x (1 - 0.12) / (1 - share masked), in use as in training.
Tensor without_token(const Tensor& x, const Tensor& dropped, const Tensor& key_mask) {
  constexpr double kKept = 1 - 0.15 * 0.8;
  const Tensor masked = dropped.sum(1).to(at::kFloat);  // [B]
  const Tensor length = key_mask.defined()
                            ? key_mask.sum(1).clamp_min(1).to(at::kFloat)
                            : at::full_like(masked, static_cast<double>(dropped.size(1)));
  // At least one token is left: otherwise there is nothing but zeros to be scaled.
  const Tensor left = (length - masked).clamp_min(1) / length;
  const Tensor kept = x.masked_fill(dropped.unsqueeze(-1), 0) * kKept;
  return (kept / left.view({-1, 1, 1})).to(x.scalar_type());
}

}  // namespace

EmbeddingImpl::EmbeddingImpl(const ModelConfig& config)
    : weight(register_parameter("weight", at::zeros({config.vocabulary, config.dim}))),
      dim_(config.dim),
      sinusoidal_(config.positions == "sinusoidal"),
      dropped_token_(config.token_dropout) {
  if (config.positions == "learned") {
    positions_ = register_parameter("positions", at::zeros({config.max_length, config.dim}));
  }
  if (config.token_types > 0) {
    types_ = register_parameter("types", at::zeros({config.token_types, config.dim}));
  }
  if (config.embedding_norm) norm_ = register_module("norm", Norm(config));
}

Tensor EmbeddingImpl::sinusoids(std::int64_t first, std::int64_t length, const Tensor& like) {
  const std::int64_t known = table_.defined() ? table_.size(0) : 0;
  if (first < begin_ || begin_ + known < first + length || table_.dtype() != like.dtype() ||
      table_.device() != like.device()) {
    constexpr std::int64_t kStreamRows = 128;  // as RotaryTables: a table that moves with a stream
    begin_ = first;
    const std::int64_t rows = first > 0 ? std::max(length, kStreamRows) : length;
    table_ = sinusoid_rows(at::arange(first, first + rows, at::kDouble), dim_).to(like.options());
  }
  return table_.narrow(0, first - begin_, length);
}

void EmbeddingImpl::check_length(std::int64_t length) const {
  if (!positions_.defined() || length <= positions_.size(0)) return;
  fail(ExitCode::kBadInput,
       "model: learned positions end at model.max_length = {}, the sequence has {} tokens; use a "
       "shorter one, or a model with rotary positions",
       positions_.size(0), length);
}

Tensor EmbeddingImpl::with_positions(const Tensor& x, std::int64_t position, const Tensor& index) {
  const std::int64_t length = x.size(1);
  if (sinusoidal_) {
    const Tensor rows = index.defined()
                            ? sinusoid_rows(index.to(at::kDouble), dim_).to(x.scalar_type())
                            : sinusoids(position, length, x);
    return at::add(rows, x, std::sqrt(static_cast<double>(dim_)));
  }
  if (!positions_.defined()) return x;
  check_length(position + length);
  return x + (index.defined() ? positions_.index_select(0, index)
                              : positions_.narrow(0, position, length));
}

Tensor EmbeddingImpl::forward(const Tensor& tokens, std::int64_t position, const Tensor& index,
                              const Tensor& key_mask) {
  TORCH_CHECK(tokens.dim() == 2, "Transformer: tokens must be [batch, length], got ",
              tokens.sizes());
  Tensor x = at::embedding(weight, tokens);
  if (dropped_token_ >= 0) x = without_token(x, tokens.eq(dropped_token_), key_mask);
  x = with_positions(x, position, index);
  if (types_.defined()) x = x + types_.select(0, 0);
  return norm_.is_empty() ? x : norm_->forward(x);
}

}  // namespace performer::models
