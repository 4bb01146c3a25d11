#include "performer/ops/exact/softmax_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "performer/ops/checks.h"

namespace performer {
namespace {

// Elements of one block of weights: a few MB, whatever the length.
constexpr std::int64_t kScoresPerBlock = std::int64_t{1} << 21;

// [B, Lk] or [B, 1|Hkv|H, Lk] -> [B, 1|H, 1, Lk]
Tensor expand_key_bias(const char* op, const Tensor& bias, const Tensor& k, std::int64_t heads) {
  check_dense(op, "key_bias", bias);
  TORCH_CHECK(at::isFloatingType(bias.scalar_type()), op, ": key_bias must be floating, got ",
              bias.scalar_type());
  TORCH_CHECK(bias.device() == k.device(), op, ": key_bias must be on ", k.device(), ", got ",
              bias.device());
  const Tensor b = bias.dim() == 2 ? bias.unsqueeze(1) : bias;
  const bool fits = b.dim() == 3 && b.size(0) == k.size(0) && b.size(2) == k.size(2) &&
                    (b.size(1) == 1 || b.size(1) == k.size(1) || b.size(1) == heads);
  TORCH_CHECK(fits, op, ": key_bias must be [batch, heads, key length] of k ", k.sizes(), ", got ",
              bias.sizes());
  return (b.size(1) == 1 ? b : expand_heads(b, heads)).unsqueeze(2);
}

}  // namespace

void check_heads(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  TORCH_CHECK(q.defined() && k.defined(), op, ": q and k must be defined tensors");
  check_dense(op, "q", q);
  check_dense(op, "k", k);
  check_dense(op, "v", v);
  TORCH_CHECK(q.dim() == 4, op, ": q must be [batch, heads, length, dim], got ", q.sizes());
  TORCH_CHECK(at::isFloatingType(q.scalar_type()), op, ": q must be floating, got ",
              q.scalar_type());
  TORCH_CHECK(k.dim() == 4 && k.size(0) == q.size(0) && k.size(3) == q.size(3), op,
              ": k must be [batch, key heads, key length, dim] with the batch and dim of q ",
              q.sizes(), ", got ", k.sizes());
  TORCH_CHECK(q.size(3) > 0, op, ": q must have a last size that is not 0, got ", q.sizes());
  TORCH_CHECK(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0, op, ": the ", k.size(1),
              " heads of k must divide the ", q.size(1), " heads of q (neither 0)");
  TORCH_CHECK(k.scalar_type() == q.scalar_type() && k.device() == q.device(), op,
              ": k must have the dtype and device of q (", q.scalar_type(), ", ", q.device(),
              "), got ", k.scalar_type(), ", ", k.device());
  if (!v.defined()) return;
  TORCH_CHECK(v.dim() == 4 && v.sizes().slice(0, 3) == k.sizes().slice(0, 3), op,
              ": v must be [batch, key heads, key length, value dim] as k ", k.sizes(), ", got ",
              v.sizes());
  TORCH_CHECK(v.scalar_type() == q.scalar_type() && v.device() == q.device(), op,
              ": v must have the dtype and device of q (", q.scalar_type(), ", ", q.device(),
              "), got ", v.scalar_type(), ", ", v.device());
}

void check_key_mask(const char* op, const Tensor& key_mask, const Tensor& k) {
  check_dense(op, "key_mask", key_mask);
  TORCH_CHECK(key_mask.scalar_type() == at::kBool, op, ": key_mask must be bool, got ",
              key_mask.scalar_type());
  TORCH_CHECK(key_mask.dim() == 2 && key_mask.size(0) == k.size(0) && key_mask.size(1) == k.size(2),
              op, ": key_mask must be [", k.size(0), ", ", k.size(2), "], got ", key_mask.sizes());
  TORCH_CHECK(key_mask.device() == k.device(), op, ": key_mask must be on ", k.device(), ", got ",
              key_mask.device());
}

Tensor expand_heads(const Tensor& t, std::int64_t heads) {
  return t.size(1) == heads ? t : t.repeat_interleave(heads / t.size(1), 1);
}

SoftmaxRows::SoftmaxRows(const char* op, const Tensor& q, const Tensor& k,
                         const ExactOptions& options)
    : causal_(options.causality == Causality::kCausal) {
  check_heads(op, q, k);
  heads_ = q.size(1);
  scale_ = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  TORCH_CHECK(std::isfinite(scale_) && scale_ > 0, op, ": scale must be positive, got ", scale_);
  check_float_range(op, "scale", scale_, q.scalar_type());
  TORCH_CHECK(!causal_ || q.size(2) == k.size(2), op,
              ": causal attention needs q and k of one length, got q ", q.sizes(), ", k ",
              k.sizes());
  const auto dtype = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (options.key_mask.defined()) {
    check_key_mask(op, options.key_mask, k);
    key_allowed_ = options.key_mask.unsqueeze(1).unsqueeze(1);
  } else {
    key_allowed_ = at::ones({1, 1, 1, k.size(2)}, k.options().dtype(at::kBool));
  }
  if (options.key_bias.defined()) {
    const Tensor bias = expand_key_bias(op, options.key_bias, k, heads_).to(dtype);
    const Tensor removed = bias == -std::numeric_limits<double>::infinity();
    key_allowed_ = key_allowed_.logical_and(removed.logical_not());
    bias_ = bias.masked_fill(removed, 0);
  }
  k_ = values(k).to(dtype);
}

std::int64_t SoftmaxRows::block_rows() const {
  const std::int64_t row = std::max<std::int64_t>(k_.size(0) * k_.size(1) * k_.size(2), 1);
  return std::max<std::int64_t>(kScoresPerBlock / row, 1);
}

Tensor SoftmaxRows::products(const Tensor& q) const {
  return at::matmul(q.to(k_.scalar_type()) * scale_, k_.transpose(-2, -1));
}

Tensor SoftmaxRows::allowed(const Tensor& positions) const {
  if (!causal_) return key_allowed_;
  const Tensor past = at::arange(k_.size(2), positions.options()) <= positions.unsqueeze(1);
  return key_allowed_.logical_and(past);  // [B|1, 1|H, R, Lk]
}

Tensor SoftmaxRows::weights(const Tensor& products, const Tensor& positions) const {
  const Tensor seen = allowed(positions);
  const Tensor empty = seen.any(-1, true).logical_not();
  const Tensor logits = bias_.defined() ? products + bias_ : products;
  // A row without keys gets finite logits before it is cleared, so that its gradient is not NaN.
  return logits.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity())
      .masked_fill(empty, 0)
      .softmax(-1)
      .masked_fill(empty, 0);
}

Tensor SoftmaxRows::values(const Tensor& v) const {
  return expand_heads(v, heads_).masked_fill(key_allowed_.transpose(-2, -1).logical_not(), 0);
}

}  // namespace performer
