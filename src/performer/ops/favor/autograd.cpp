#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <utility>

#include "performer/ops/checks.h"
#include "performer/ops/favor/schema.h"

namespace performer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The results that the backward operator takes.
constexpr auto kKeptResults = fields_with<kResultFields, kInBackward>();

/// What the backward pass reads, put into the context and taken out again in one order: `visit`
/// sees each member of both structs, tensors and others.
template <class Args, class Result, class Visit>
void for_each_kept(Args& args, Result& result, Visit&& visit) {
  for_each_field(kBackwardFields, [&](const auto& f) { visit(f.name, args.*f.member); });
  for_each_field(kKeptResults, [&](const auto& f) { visit(f.name, result.*f.member); });
}

void keep(AutogradContext* ctx, const FavorArgs& args, const FavorResult& result) {
  variable_list tensors;
  for_each_kept(args, result, [&]<class T>(const char* name, const T& value) {
    if constexpr (kIsTensor<T>) {
      tensors.push_back(value);
    } else {
      ctx->saved_data[name] = value;
    }
  });
  ctx->save_for_backward(std::move(tensors));
}

void restore(AutogradContext* ctx, FavorArgs& args, FavorResult& result) {
  const auto tensors = ctx->get_saved_variables();
  std::size_t next = 0;
  for_each_kept(args, result, [&]<class T>(const char* name, T& value) {
    if constexpr (kIsTensor<T>) {
      value = tensors[next++];
    } else {
      value = ctx->saved_data[name].template to<T>();
    }
  });
}

class FavorAttention : public torch::autograd::Function<FavorAttention> {
 public:
  // Autograd sees the differentiable arguments alone, which come one by one beside all of them.
  template <class... Differentiable>
  static variable_list forward(AutogradContext* ctx, const FavorArgs& args,
                               const Differentiable&... /*differentiable*/) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const FavorResult r = call_favor_attention(args);
    FavorResult kept = r;
    kept.out = kept_out(args, r);
    keep(ctx, args, kept);
    ctx->mark_non_differentiable(
        {r.row_sum, r.row_log2_scale, r.log2_scale, r.near_position, r.fingerprint});
    ctx->set_materialize_grads(false);
    return as_list(r);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const FavorResult incoming = as_result(grads);
    FavorArgs args;
    FavorSaved saved;
    restore(ctx, args, saved.result);
    saved.grad_out = incoming.out.defined() ? incoming.out : zero_output_gradient(args);
    saved.grad_kv = incoming.kv, saved.grad_normalizer = incoming.normalizer;
    saved.grad_near_keys = incoming.near_keys, saved.grad_near_values = incoming.near_values;
    saved.grad_near_bias = incoming.near_bias;
    const FavorNeeds needed = needed_gradients(ctx, args);
    saved.needs = needed;
    // The two tensors of a state are one gradient.
    constexpr std::size_t kKv = gradient_of(&FavorArgs::state_kv);
    constexpr std::size_t kNormalizer = gradient_of(&FavorArgs::state_normalizer);
    saved.needs[kKv] = saved.needs[kNormalizer] = needed[kKv] || needed[kNormalizer];
    FavorGradients found = call_favor_attention_backward(saved, args);
    variable_list out(1);  // of args: none
    for (std::size_t i = 0; i < kNumGradients; ++i) {
      out.push_back(needed[i] ? std::move(found[i]) : Tensor());
    }
    return out;
  }

 private:
  // The fused CUDA kernels take g . out from it. The CPU's need no such memory: they form it anew.
  static Tensor kept_out(const FavorArgs& args, const FavorResult& r) {
    return args.q.is_cuda() && args.q.scalar_type() != at::kDouble ? r.out : Tensor();
  }

  static Tensor zero_output_gradient(const FavorArgs& args) {
    const Tensor& q = args.q;
    return at::zeros_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), args.v.sym_size(3)},
                            q.options());
  }

  // Autograd counts only the arguments that were given.
  static FavorNeeds needed_gradients(AutogradContext* ctx, const FavorArgs& args) {
    FavorNeeds needs{};
    std::size_t place = 0, edge = 0;
    for_each_field(kGradientFields, [&](const auto& field) {
      if ((args.*field.member).defined()) needs[place] = ctx->needs_input_grad(edge++);
      ++place;
    });
    return needs;
  }
};

FavorResult forward_autograd(const FavorArgs& args) {
  // Before autograd asks for their device.
  check_defined(args.op, {"q", args.q});
  check_defined(args.op, {"k", args.k});
  check_defined(args.op, {"v", args.v});
  FavorArgs a = args;
  a.for_backward = a.for_backward || c10::GradMode::is_enabled();
  return std::apply(
      [&](const auto&... field) {
        return as_result(FavorAttention::apply(a, OptionalTensor(a.*field.member)...));
      },
      kGradientFields);
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
  m.impl("favor_attention", kForwardEntry<&forward_autograd>);
  m.impl("favor_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

TORCH_LIBRARY_IMPL(performer, AutocastCPU, m) {
  m.impl("favor_attention", kForwardEntry<&forward_autocast<at::kCPU>>);
}

TORCH_LIBRARY_IMPL(performer, AutocastCUDA, m) {
  m.impl("favor_attention", kForwardEntry<&forward_autocast<at::kCUDA>>);
}

}  // namespace performer
