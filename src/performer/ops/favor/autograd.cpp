#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "performer/ops/favor/schema.h"

namespace performer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saved after the differentiable arguments and the results.
enum Constant : std::uint8_t { kKeyMask, kCuSeqlensQ, kCuSeqlensK, kStateLog2Scale };

class FavorAttention : public torch::autograd::Function<FavorAttention> {
 public:
  // The differentiable arguments come one by one, in the order of Differentiable: autograd sees
  // them so.
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k,
                               const Tensor& v, const OptionalTensor& /*projection*/,
                               const OptionalTensor& /*projection_k*/,
                               const OptionalTensor& /*bias_q*/, const OptionalTensor& /*bias_k*/,
                               const OptionalTensor& /*key_bias*/,
                               const OptionalTensor& /*state_kv*/,
                               const OptionalTensor& /*state_normalizer*/, const FavorArgs& args) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const FavorResult r = call_favor_attention(args);
    ctx->save_for_backward({q,
                            k,
                            v,
                            args.projection,
                            args.projection_k,
                            args.bias_q,
                            args.bias_k,
                            args.key_bias,
                            args.state_kv,
                            args.state_normalizer,
                            r.row_sum,
                            r.row_log2_scale,
                            r.kv,
                            r.normalizer,
                            r.log2_scale,
                            kept_out(args, r),
                            args.key_mask,
                            args.cu_seqlens_q,
                            args.cu_seqlens_k,
                            args.state_log2_scale});
    ctx->saved_data["feature_map"] = args.feature_map;
    ctx->saved_data["causal"] = args.causal;
    ctx->saved_data["scale"] = args.scale;
    ctx->saved_data["eps"] = args.eps;
    ctx->saved_data["renormalize"] = args.renormalize;
    ctx->mark_non_differentiable({r.row_sum, r.row_log2_scale, r.log2_scale, r.fingerprint});
    ctx->set_materialize_grads(false);
    return {r.out, r.row_sum, r.row_log2_scale, r.kv, r.normalizer, r.log2_scale, r.fingerprint};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto t = ctx->get_saved_variables();
    const auto* results = &t[kNumDifferentiable];
    const auto* constants = results + 6;
    FavorSaved saved{{results[5], results[0], results[1], results[2], results[3], results[4], {}},
                     grads[0].defined() ? grads[0] : zero_output_gradient(t[kQ], t[kV]),
                     grads[3],
                     grads[4],
                     {}};
    FavorArgs args;
    args.q = t[kQ], args.k = t[kK], args.v = t[kV];
    args.projection = t[kProjection], args.projection_k = t[kProjectionK];
    args.bias_q = t[kBiasQ], args.bias_k = t[kBiasK], args.key_bias = t[kKeyBias];
    args.state_kv = t[kStateKv], args.state_normalizer = t[kStateNormalizer];
    args.key_mask = constants[kKeyMask], args.state_log2_scale = constants[kStateLog2Scale];
    args.cu_seqlens_q = constants[kCuSeqlensQ], args.cu_seqlens_k = constants[kCuSeqlensK];
    args.feature_map = ctx->saved_data["feature_map"].toStringRef();
    args.causal = ctx->saved_data["causal"].toBool();
    args.scale = ctx->saved_data["scale"].toOptional<double>();
    args.eps = ctx->saved_data["eps"].toOptional<double>();
    args.renormalize = ctx->saved_data["renormalize"].toBool();
    const FavorNeeds needed = needed_gradients(ctx, t);
    saved.needs = needed;
    // The two tensors of a state are one gradient.
    saved.needs[kStateKv] = saved.needs[kStateNormalizer] =
        needed[kStateKv] || needed[kStateNormalizer];
    variable_list out = call_favor_attention_backward(saved, args);
    for (std::size_t i = 0; i < kNumDifferentiable; ++i) {
      if (!needed[i]) out[i] = Tensor();
    }
    out.emplace_back();  // args
    return out;
  }

 private:
  // The fused CUDA kernels take g . out from it. The CPU's need no such memory: they form it anew.
  static Tensor kept_out(const FavorArgs& args, const FavorResult& r) {
    return args.q.is_cuda() && args.q.scalar_type() != at::kDouble ? r.out : Tensor();
  }

  static Tensor zero_output_gradient(const Tensor& q, const Tensor& v) {
    return at::zeros_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)},
                            q.options());
  }

  // Autograd counts only the arguments that were given.
  static FavorNeeds needed_gradients(AutogradContext* ctx, const variable_list& arguments) {
    FavorNeeds needs{};
    std::size_t edge = 0;
    for (std::size_t i = 0; i < kNumDifferentiable; ++i) {
      if (arguments[i].defined()) needs[i] = ctx->needs_input_grad(edge++);
    }
    return needs;
  }
};

FavorResult forward_autograd(const FavorArgs& args) {
  // Before autograd asks for their device.
  TORCH_CHECK(args.q.defined(), args.op, ": q must be a defined tensor");
  TORCH_CHECK(args.k.defined(), args.op, ": k must be a defined tensor");
  TORCH_CHECK(args.v.defined(), args.op, ": v must be a defined tensor");
  FavorArgs a = args;
  a.for_backward = a.for_backward || c10::GradMode::is_enabled();
  const auto r =
      FavorAttention::apply(a.q, a.k, a.v, as_optional(a.projection), as_optional(a.projection_k),
                            as_optional(a.bias_q), as_optional(a.bias_k), as_optional(a.key_bias),
                            as_optional(a.state_kv), as_optional(a.state_normalizer), a);
  return {r[0], r[1], r[2], r[3], r[4], r[5], r[6]};
}

// Autocast lowers q, k and v; the projection and all arithmetic keep their precision.
template <at::DeviceType Device>
FavorResult forward_autocast(const FavorArgs& args) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(Device)));
  const auto dtype = at::autocast::get_autocast_dtype(Device);
  FavorArgs lowered = args;
  lowered.q = at::autocast::cached_cast(dtype, args.q, Device);
  lowered.k = at::autocast::cached_cast(dtype, args.k, Device);
  lowered.v = at::autocast::cached_cast(dtype, args.v, Device);
  return call_favor_attention(lowered);
}

}  // namespace

TORCH_LIBRARY_IMPL(performer, Autograd, m) {
  m.impl("favor_attention", &forward_kernel<&forward_autograd>);
  m.impl("favor_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

TORCH_LIBRARY_IMPL(performer, AutocastCPU, m) {
  m.impl("favor_attention", &forward_kernel<&forward_autocast<at::kCPU>>);
}

TORCH_LIBRARY_IMPL(performer, AutocastCUDA, m) {
  m.impl("favor_attention", &forward_kernel<&forward_autocast<at::kCUDA>>);
}

}  // namespace performer
