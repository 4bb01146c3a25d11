#include "performer/ops/favor/arguments.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "performer/ops/favor/attention.h"

namespace performer {
namespace {

// The head count of a parameter whose head axis comes before its last `trailing` axes.
c10::SymInt parameter_heads(const Tensor& p, std::int64_t trailing) {
  return p.dim() == trailing ? c10::SymInt(1) : p.sym_size(0);
}

std::optional<c10::SymInt> symbolic(const std::optional<std::int64_t>& n) {
  return n ? std::optional<c10::SymInt>(*n) : std::nullopt;
}

std::optional<std::int64_t> integer(const std::optional<c10::SymInt>& n) {
  return n ? std::optional<std::int64_t>(n->expect_int()) : std::nullopt;
}

}  // namespace

FavorArgs favor_args(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                     const FavorOptions& o) {
  return {.q = q,
          .k = k,
          .v = v,
          .projection = W,
          .feature_map = std::string(to_string(o.feature_map)),
          .causal = o.causality == Causality::kCausal,
          .scale = o.scale,
          .eps = o.eps,
          .renormalize = o.renormalize == Renormalize::kYes,
          .near = o.near,
          .key_mask = o.key_mask,
          .cu_seqlens_q = o.cu_seqlens_q,
          .cu_seqlens_k = o.cu_seqlens_k,
          .max_seqlen_q = symbolic(o.max_seqlen_q),
          .max_seqlen_k = symbolic(o.max_seqlen_k),
          .projection_k = o.projection_k,
          .bias_q = o.bias_q,
          .bias_k = o.bias_k,
          .key_bias = o.key_bias,
          .query_bias = o.query_bias,
          .state_kv = o.initial_state.kv,
          .state_normalizer = o.initial_state.normalizer,
          .state_log2_scale = o.initial_state.log2_scale,
          .state_near_keys = o.initial_state.near_keys,
          .state_near_values = o.initial_state.near_values,
          .state_near_bias = o.initial_state.near_bias,
          .state_near_position = o.initial_state.near_position,
          .state_fingerprint = o.initial_state.fingerprint,
          .for_backward = c10::GradMode::is_enabled()};
}

FavorOptions favor_options(const FavorArgs& a) {
  return {.feature_map = a.map(),
          .causality = a.causal ? Causality::kCausal : Causality::kBidirectional,
          .scale = a.scale,
          .eps = a.eps,
          .renormalize = a.renormalize ? Renormalize::kYes : Renormalize::kNo,
          .near = a.near,
          .key_mask = a.key_mask,
          .cu_seqlens_q = a.cu_seqlens_q,
          .cu_seqlens_k = a.cu_seqlens_k,
          .max_seqlen_q = integer(a.max_seqlen_q),
          .max_seqlen_k = integer(a.max_seqlen_k),
          .projection_k = a.projection_k,
          .bias_q = a.bias_q,
          .bias_k = a.bias_k,
          .key_bias = a.key_bias,
          .query_bias = a.query_bias,
          .initial_state = {a.state_kv, a.state_normalizer, a.state_log2_scale, a.state_fingerprint,
                            a.state_near_keys, a.state_near_values, a.state_near_bias,
                            a.state_near_position}};
}

double FavorArgs::resolved_scale() const {
  if (scale) return *scale;
  if (!is_softmax_map(map())) return 1.0;
  return 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
}

double FavorArgs::resolved_eps() const { return eps.value_or(default_eps(map())); }

c10::SymInt FavorArgs::num_features() const {
  const c10::SymInt rows = projection.defined() ? projection.sym_size(-2) : q.sym_size(-1);
  return rows * num_map_features(map(), 1);
}

c10::SymInt FavorArgs::num_states() const {
  return packed() ? cu_seqlens_k.sym_size(0) - 1 : q.sym_size(0);
}

c10::SymInt FavorArgs::state_heads() const {
  const c10::SymInt query_heads = q.sym_size(1);
  const auto has_query_heads = [&](const Tensor& p, std::int64_t trailing) {
    return p.defined() && parameter_heads(p, trailing) == query_heads;
  };
  const bool per_query_head =
      has_query_heads(key_projection(), 2) || has_query_heads(bias_k, 1) ||
      (key_bias.defined() && key_bias.dim() == 3 && key_bias.sym_size(1) == query_heads);
  return per_query_head ? query_heads : k.sym_size(1);
}

at::ScalarType FavorArgs::accumulate() const {
  return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor empty_in_stride_order(const Tensor& like, c10::SymIntArrayRef sizes) {
  const auto strides = like.sym_strides();
  std::vector<std::int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  // Expanded dimensions (stride 0) say nothing of the order and come first.
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const auto& left = strides[static_cast<std::size_t>(a)];
    const auto& right = strides[static_cast<std::size_t>(b)];
    return right != 0 && (left == 0 || left > right);
  });
  std::vector<c10::SymInt> laid_out;
  std::vector<std::int64_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    laid_out.push_back(sizes[static_cast<std::size_t>(order[i])]);
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return at::empty_symint(laid_out, like.options()).permute(inverse);
}

}  // namespace performer
