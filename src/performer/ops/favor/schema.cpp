#include "performer/ops/favor/schema.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace performer {
namespace {

using ForwardSignature = decltype(forward_kernel<nullptr>);
using BackwardSignature = decltype(backward_kernel<nullptr>);

}  // namespace

FavorResult call_favor_attention(const FavorArgs& a) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("performer::favor_attention", "")
                             .typed<ForwardSignature>();
  const auto [out, row_sum, row_log2_scale, kv, normalizer, log2_scale, fingerprint] =
      op.call(a.q, a.k, a.v, as_optional(a.projection), a.feature_map, a.causal, a.scale, a.eps,
              a.renormalize, as_optional(a.key_mask), as_optional(a.cu_seqlens_q),
              as_optional(a.cu_seqlens_k), a.max_seqlen_q, a.max_seqlen_k,
              as_optional(a.projection_k), as_optional(a.bias_q), as_optional(a.bias_k),
              as_optional(a.key_bias), as_optional(a.state_kv), as_optional(a.state_normalizer),
              as_optional(a.state_log2_scale), as_optional(a.state_fingerprint), a.for_backward);
  return {out, row_sum, row_log2_scale, kv, normalizer, log2_scale, fingerprint};
}

FavorGradients call_favor_attention_backward(const FavorSaved& s, const FavorArgs& a) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("performer::favor_attention_backward", "")
                             .typed<BackwardSignature>();
  const FavorResult& r = s.result;
  return op.call(s.grad_out, as_optional(s.grad_kv), as_optional(s.grad_normalizer), r.row_sum,
                 r.row_log2_scale, r.kv, r.normalizer, r.log2_scale, as_optional(r.out), a.q, a.k,
                 a.v, as_optional(a.projection), a.feature_map, a.causal, a.scale, a.eps,
                 a.renormalize, as_optional(a.key_mask), as_optional(a.cu_seqlens_q),
                 as_optional(a.cu_seqlens_k), as_optional(a.projection_k), as_optional(a.bias_q),
                 as_optional(a.bias_k), as_optional(a.key_bias), as_optional(a.state_kv),
                 as_optional(a.state_normalizer), as_optional(a.state_log2_scale), s.needs);
}

FavorResult allocate_result(const FavorArgs& a) {
  const auto sums = a.q.options().dtype(a.accumulate());
  const auto integers = a.q.options().dtype(at::kInt);
  const std::vector<c10::SymInt> rows = {a.q.sym_size(0), a.q.sym_size(1), a.q.sym_size(2)};
  const std::vector<c10::SymInt> state = {a.num_states(), a.state_heads(), a.num_features()};
  const std::vector<c10::SymInt> kept = a.for_backward ? rows : std::vector<c10::SymInt>{0};
  auto out = rows, kv = state;
  out.push_back(a.v.sym_size(3));
  kv.push_back(a.v.sym_size(3));
  return {empty_in_stride_order(a.q, out),
          at::empty_symint(kept, sums),
          at::empty_symint(kept, integers),
          at::empty_symint(kv, sums),
          at::empty_symint(state, sums),
          at::empty_symint(state, integers),
          at::empty({1}, a.q.options().dtype(at::kLong))};
}

FavorResult with_rows(const FavorArgs& a, const FavorResult& result) {
  if (a.for_backward) return result;
  FavorResult full = result;
  const auto rows = a.q.sizes().slice(0, 3);
  full.row_sum = at::empty(rows, result.row_sum.options());
  full.row_log2_scale = at::empty(rows, result.row_log2_scale.options());
  return full;
}

FavorGradients allocate_gradients(const FavorArgs& a, const FavorNeeds& needs) {
  FavorGradients grads;
  for (const auto* t : {&a.q, &a.k, &a.v}) {
    grads.push_back(empty_in_stride_order(*t, t->sym_sizes()));
  }
  const Tensor* parameters[] = {&a.projection, &a.projection_k, &a.bias_q,          &a.bias_k,
                                &a.key_bias,   &a.state_kv,     &a.state_normalizer};
  for (const auto* p : parameters) {
    const bool needed = needs[grads.size()];
    grads.push_back(needed ? at::empty_like(*p, p->options(), at::MemoryFormat::Contiguous)
                           : at::empty({0}, a.q.options()));
  }
  return grads;
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "favor_attention(Tensor q, Tensor k, Tensor v, Tensor? projection, str feature_map, "
      "bool causal, float? scale, float? eps, bool renormalize, Tensor? key_mask, "
      "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, SymInt? max_seqlen_q, SymInt? max_seqlen_k, "
      "Tensor? projection_k, Tensor? bias_q, Tensor? bias_k, Tensor? key_bias, Tensor? state_kv, "
      "Tensor? state_normalizer, Tensor? state_log2_scale, Tensor? state_fingerprint, "
      "bool for_backward=True) -> "
      "(Tensor out, Tensor row_sum, Tensor row_log2_scale, Tensor kv, Tensor normalizer, "
      "Tensor log2_scale, Tensor fingerprint)");
  m.def(
      "favor_attention_backward(Tensor grad_out, Tensor? grad_kv, Tensor? grad_normalizer, "
      "Tensor row_sum, Tensor row_log2_scale, Tensor kv, Tensor normalizer, "
      "Tensor log2_scale, Tensor? out, Tensor q, Tensor k, Tensor v, Tensor? projection, "
      "str feature_map, bool causal, float? scale, float? eps, bool renormalize, Tensor? key_mask, "
      "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? projection_k, Tensor? bias_q, "
      "Tensor? bias_k, Tensor? key_bias, Tensor? state_kv, Tensor? state_normalizer, "
      "Tensor? state_log2_scale, bool[10] needs) -> Tensor[]");
}

}  // namespace performer
