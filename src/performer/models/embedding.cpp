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

}  // namespace

EmbeddingImpl::EmbeddingImpl(const ModelConfig& config)
    : weight(register_parameter("weight", at::zeros({config.vocabulary, config.dim}))),
      dim_(config.dim),
      sinusoidal_(config.positions == "sinusoidal") {
  if (config.positions == "learned") {
    positions_ = register_parameter("positions", at::zeros({config.max_length, config.dim}));
  }
}

Tensor EmbeddingImpl::sinusoids(std::int64_t first, std::int64_t length, const Tensor& like) {
  const std::int64_t known = table_.defined() ? table_.size(0) : 0;
  if (known < first + length || table_.dtype() != like.dtype() ||
      table_.device() != like.device()) {
    const std::int64_t capacity = std::max<std::int64_t>(first + length, first > 0 ? 2 * known : 0);
    table_ = sinusoid_rows(at::arange(capacity, at::kDouble), dim_).to(like.options());
  }
  return table_.narrow(0, first, length);
}

void EmbeddingImpl::check_length(std::int64_t length) const {
  if (!positions_.defined() || length <= positions_.size(0)) return;
  fail(ExitCode::kBadInput,
       "model: learned positions end at model.max_length = {}, the sequence has {} tokens; use a "
       "shorter one, or a model with rotary positions",
       positions_.size(0), length);
}

Tensor EmbeddingImpl::forward(const Tensor& tokens, std::int64_t position, const Tensor& index) {
  TORCH_CHECK(tokens.dim() == 2, "Transformer: tokens must be [batch, length], got ",
              tokens.sizes());
  Tensor x = at::embedding(weight, tokens);
  const std::int64_t length = tokens.size(1);
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

}  // namespace performer::models
