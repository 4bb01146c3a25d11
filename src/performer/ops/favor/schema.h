#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "performer/ops/favor/arguments.h"

namespace performer {

/// What the forward operator returns.
struct FavorResult {
  Tensor out;                         // [B, H, Lq, Dv], q's dtype and stride order
  Tensor row_sum, row_log2_scale;     // [B, H, Lq] denominators: row_sum 2^row_log2_scale (int32);
                                      // [0] unless for_backward
  Tensor kv, normalizer, log2_scale;  // the final state
  Tensor fingerprint;                 // int64 [1]
};

/// The differentiable arguments, in the order of autograd and of the backward operator's results.
enum Differentiable : std::uint8_t {
  kQ,
  kK,
  kV,
  kProjection,
  kProjectionK,
  kBiasQ,
  kBiasK,
  kKeyBias,
  kStateKv,
  kStateNormalizer,
  kNumDifferentiable
};
using FavorNeeds = std::array<bool, kNumDifferentiable>;

/// What the backward operator takes beside the forward arguments.
struct FavorSaved {
  FavorResult result;               // fingerprint undefined; out: the fused CUDA kernels read it
  Tensor grad_out;                  // [B, H, Lq, Dv]
  Tensor grad_kv, grad_normalizer;  // of the final state; undefined: 0
  FavorNeeds needs{};
};

/// kNumDifferentiable tensors; one that is not needed has 0 elements (q, k and v always are).
using FavorGradients = std::vector<Tensor>;

/// Throws unless the backward operator's own arguments fit `args`, which are checked already, and
/// each other. Works on symbolic sizes.
void check_favor_saved(const FavorSaved& saved, const FavorArgs& args);
/// The rules on the values of saved exponents, as check_favor_values.
void check_saved_values(const FavorSaved& saved, const FavorArgs& args);

/// Calls through the dispatcher.
FavorResult call_favor_attention(const FavorArgs& args);
FavorGradients call_favor_attention_backward(const FavorSaved& saved, const FavorArgs& args);

/// Outputs in the shapes and stride orders the operators promise, for real and symbolic sizes
/// alike.
FavorResult allocate_result(const FavorArgs& args);
/// `result` with row_sum and row_log2_scale of full size: its own, or new ones.
FavorResult with_rows(const FavorArgs& args, const FavorResult& result);
FavorGradients allocate_gradients(const FavorArgs& args, const FavorNeeds& needs);

/// The registered signatures, on the struct form: an implementation is a function of FavorArgs, and
/// forward_kernel<&implementation> is what TORCH_LIBRARY_IMPL takes.
using OptionalTensor = std::optional<Tensor>;
inline OptionalTensor as_optional(const Tensor& t) {
  return t.defined() ? OptionalTensor(t) : std::nullopt;
}
using ForwardTuple = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

template <FavorResult (*Implementation)(const FavorArgs&)>
ForwardTuple forward_kernel(const Tensor& q, const Tensor& k, const Tensor& v,
                            const OptionalTensor& projection, c10::string_view feature_map,
                            bool causal, std::optional<double> scale, std::optional<double> eps,
                            bool renormalize, const OptionalTensor& key_mask,
                            const OptionalTensor& cu_seqlens_q, const OptionalTensor& cu_seqlens_k,
                            std::optional<c10::SymInt> max_seqlen_q,
                            std::optional<c10::SymInt> max_seqlen_k,
                            const OptionalTensor& projection_k, const OptionalTensor& bias_q,
                            const OptionalTensor& bias_k, const OptionalTensor& key_bias,
                            const OptionalTensor& state_kv, const OptionalTensor& state_normalizer,
                            const OptionalTensor& state_log2_scale,
                            const OptionalTensor& state_fingerprint, bool for_backward) {
  const auto r = Implementation({q,
                                 k,
                                 v,
                                 projection.value_or(Tensor()),
                                 std::string(feature_map),
                                 causal,
                                 scale,
                                 eps,
                                 renormalize,
                                 key_mask.value_or(Tensor()),
                                 cu_seqlens_q.value_or(Tensor()),
                                 cu_seqlens_k.value_or(Tensor()),
                                 std::move(max_seqlen_q),
                                 std::move(max_seqlen_k),
                                 projection_k.value_or(Tensor()),
                                 bias_q.value_or(Tensor()),
                                 bias_k.value_or(Tensor()),
                                 key_bias.value_or(Tensor()),
                                 state_kv.value_or(Tensor()),
                                 state_normalizer.value_or(Tensor()),
                                 state_log2_scale.value_or(Tensor()),
                                 state_fingerprint.value_or(Tensor()),
                                 for_backward});
  return {r.out, r.row_sum, r.row_log2_scale, r.kv, r.normalizer, r.log2_scale, r.fingerprint};
}

template <FavorGradients (*Implementation)(const FavorSaved&, const FavorArgs&)>
std::vector<Tensor> backward_kernel(
    const Tensor& grad_out, const OptionalTensor& grad_kv, const OptionalTensor& grad_normalizer,
    const Tensor& row_sum, const Tensor& row_log2_scale, const Tensor& kv, const Tensor& normalizer,
    const Tensor& log2_scale, const OptionalTensor& out, const Tensor& q, const Tensor& k,
    const Tensor& v, const OptionalTensor& projection, c10::string_view feature_map, bool causal,
    std::optional<double> scale, std::optional<double> eps, bool renormalize,
    const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens_q,
    const OptionalTensor& cu_seqlens_k, const OptionalTensor& projection_k,
    const OptionalTensor& bias_q, const OptionalTensor& bias_k, const OptionalTensor& key_bias,
    const OptionalTensor& state_kv, const OptionalTensor& state_normalizer,
    const OptionalTensor& state_log2_scale, std::array<bool, kNumDifferentiable> needs) {
  return Implementation(
      {{out.value_or(Tensor()), row_sum, row_log2_scale, kv, normalizer, log2_scale, {}},
       grad_out,
       grad_kv.value_or(Tensor()),
       grad_normalizer.value_or(Tensor()),
       needs},
      {q,
       k,
       v,
       projection.value_or(Tensor()),
       std::string(feature_map),
       causal,
       scale,
       eps,
       renormalize,
       key_mask.value_or(Tensor()),
       cu_seqlens_q.value_or(Tensor()),
       cu_seqlens_k.value_or(Tensor()),
       {},
       {},
       projection_k.value_or(Tensor()),
       bias_q.value_or(Tensor()),
       bias_k.value_or(Tensor()),
       key_bias.value_or(Tensor()),
       state_kv.value_or(Tensor()),
       state_normalizer.value_or(Tensor()),
       state_log2_scale.value_or(Tensor()),
       {},
       true,
       "favor_attention_backward"});
}

}  // namespace performer
