#include "performer/ops/exact/attention.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/exact/softmax_rows.h"

namespace performer {
namespace {

constexpr const char* kExactAttention = "exact_attention";

// The fused kernels know neither masks with causality nor values of another width; without one
// they would fall back to a matrix of Lq x Lk.
bool is_fused(const Tensor& q, const Tensor& k, const Tensor& v, const ExactOptions& options) {
  return !options.key_mask.defined() && !options.key_bias.defined() && v.size(3) == q.size(3) &&
         q.sym_numel() > 0 && k.sym_numel() > 0;
}

Tensor exact_attention_op(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                          std::optional<double> scale, const std::optional<Tensor>& key_mask,
                          const std::optional<Tensor>& key_bias) {
  ExactOptions options;
  options.causality = causal ? Causality::kCausal : Causality::kBidirectional;
  options.scale = scale;
  options.key_mask = key_mask.value_or(Tensor());
  options.key_bias = key_bias.value_or(Tensor());
  return exact_attention(q, k, v, options);
}

}  // namespace

Tensor exact_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const ExactOptions& options) {
  check_defined(kExactAttention, {"v", v});
  check_heads(kExactAttention, q, k, v);
  const SoftmaxRows exact(kExactAttention, q, k, options);
  if (is_fused(q, k, v, options)) {
    const std::int64_t heads = q.size(1);
    return at::scaled_dot_product_attention(q, expand_heads(k, heads), expand_heads(v, heads),
                                            /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                            options.causality == Causality::kCausal, exact.scale());
  }
  const Tensor values = exact.values(v).to(exact.keys().scalar_type());  // [B, H, Lk, Dv]
  const std::int64_t length = q.size(2);
  const Tensor positions = at::arange(length, q.options().dtype(at::kLong));
  std::vector<Tensor> blocks;
  std::int64_t start = 0;
  do {
    const std::int64_t rows = std::min(exact.block_rows(), length - start);
    const Tensor products = exact.products(q.narrow(2, start, rows));  // [B, H, R, Lk]
    blocks.push_back(at::matmul(exact.weights(products, positions.narrow(0, start, rows)), values));
    start += rows;
  } while (start < length);
  return at::cat(blocks, 2).to(q.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "exact_attention(Tensor q, Tensor k, Tensor v, bool causal, float? scale, Tensor? key_mask, "
      "Tensor? key_bias) -> Tensor",
      &exact_attention_op);
}

}  // namespace performer
