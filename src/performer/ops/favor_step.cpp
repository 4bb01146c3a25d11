#include "performer/ops/favor_step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <string>

#include "performer/ops/favor_call.h"
#include "performer/ops/favor_fingerprint.h"
#include "performer/ops/favor_schema.h"
#include "performer/ops/favor_step_cuda.h"

// The operator favor_step_: the decode kernel where it serves, else the whole pass over one token,
// its state copied into place.
namespace performer {
namespace {

void check_step(const FavorArgs& a) {
  TORCH_CHECK(a.q.dim() == 4 && a.q.sym_size(2) == 1,
              "favor_step_: q must be one token, [batch, heads, 1, dim], got ", a.q.sym_sizes());
  check_favor_args(a);
  const auto check = [](const Tensor& t, const char* name) {
    TORCH_CHECK(t.is_contiguous(), "favor_step_: ", name,
                " is written in place and must be contiguous, got strides ", t.sym_strides());
  };
  check(a.state_kv, "state_kv");
  check(a.state_normalizer, "state_normalizer");
  check(a.state_log2_scale, "state_log2_scale");
}

Tensor allocate_out(const FavorArgs& a) {
  return empty_in_stride_order(a.q, {a.q.sym_size(0), a.q.sym_size(1), 1, a.v.sym_size(3)});
}

Tensor step_meta(const FavorArgs& a) {
  check_step(a);
  return allocate_out(a);
}

Tensor step_kernels(const FavorArgs& a) {
  check_step(a);
  Tensor out = allocate_out(a);
  if (step_cuda(a, out, {a.state_kv, a.state_normalizer, a.state_log2_scale, {}})) return out;
  const FavorResult r = call_favor_attention(a);
  a.state_kv.copy_(r.kv);
  a.state_normalizer.copy_(r.normalizer);
  a.state_log2_scale.copy_(r.log2_scale);
  return r.out;
}

/// The registered signature on the struct form, as forward_kernel of favor_schema.h.
template <Tensor (*Implementation)(const FavorArgs&)>
Tensor step_kernel(const Tensor& q, const Tensor& k, const Tensor& v,
                   const OptionalTensor& projection, c10::string_view feature_map,
                   std::optional<double> scale, std::optional<double> eps, bool renormalize,
                   const OptionalTensor& key_mask, const OptionalTensor& projection_k,
                   const OptionalTensor& bias_q, const OptionalTensor& bias_k,
                   const OptionalTensor& key_bias, const Tensor& state_kv,
                   const Tensor& state_normalizer, const Tensor& state_log2_scale) {
  FavorArgs a;
  a.q = q, a.k = k, a.v = v;
  a.projection = projection.value_or(Tensor());
  a.feature_map = std::string(feature_map);
  a.causal = true;
  a.scale = scale, a.eps = eps, a.renormalize = renormalize;
  a.key_mask = key_mask.value_or(Tensor());
  a.projection_k = projection_k.value_or(Tensor());
  a.bias_q = bias_q.value_or(Tensor()), a.bias_k = bias_k.value_or(Tensor());
  a.key_bias = key_bias.value_or(Tensor());
  a.state_kv = state_kv, a.state_normalizer = state_normalizer;
  a.state_log2_scale = state_log2_scale;
  a.for_backward = false;
  return Implementation(a);
}

FavorArgs step_args(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                    const FavorState& state, FavorOptions& options) {
  TORCH_CHECK(q.defined() && k.defined() && v.defined() && state.defined(),
              "favor_step_: q, k, v and the state must be defined tensors");
  TORCH_CHECK(!options.cu_seqlens_q.defined() && !options.cu_seqlens_k.defined(),
              "favor_step_: a step takes one token of each sequence, got cu_seqlens");
  options.causality = Causality::kCausal;
  options.initial_state = state;
  return favor_args(q, k, v, W, options);
}

}  // namespace

Tensor favor_step_in_place(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                           const FavorState& state, FavorOptions options) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("performer::favor_step_", "")
                             .typed<decltype(step_kernel<nullptr>)>();
  const FavorArgs a = step_args(q, k, v, W, state, options);
  return op.call(a.q, a.k, a.v, as_optional(a.projection), a.feature_map, a.scale, a.eps,
                 a.renormalize, as_optional(a.key_mask), as_optional(a.projection_k),
                 as_optional(a.bias_q), as_optional(a.bias_k), as_optional(a.key_bias), a.state_kv,
                 a.state_normalizer, a.state_log2_scale);
}

void check_favor_state(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                       const FavorState& state, FavorOptions options) {
  const FavorArgs a = step_args(q, k, v, W, state, options);
  check_favor_args(a);
  if (a.state_fingerprint.defined()) check_state_fingerprint(a, favor_fingerprint(a));
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "favor_step_(Tensor q, Tensor k, Tensor v, Tensor? projection, str feature_map, "
      "float? scale, float? eps, bool renormalize, Tensor? key_mask, Tensor? projection_k, "
      "Tensor? bias_q, Tensor? bias_k, Tensor? key_bias, Tensor(a!) state_kv, "
      "Tensor(b!) state_normalizer, Tensor(c!) state_log2_scale) -> Tensor");
}

TORCH_LIBRARY_IMPL(performer, CPU, m) { m.impl("favor_step_", &step_kernel<&step_kernels>); }
TORCH_LIBRARY_IMPL(performer, CUDA, m) { m.impl("favor_step_", &step_kernel<&step_kernels>); }
TORCH_LIBRARY_IMPL(performer, Meta, m) { m.impl("favor_step_", &step_kernel<&step_meta>); }
TORCH_LIBRARY_IMPL(performer, Autograd, m) {
  m.impl("favor_step_", torch::autograd::autogradNotImplementedFallback());
}
TORCH_LIBRARY_IMPL(performer, ADInplaceOrView, m) {
  m.impl("favor_step_", torch::autograd::autogradNotImplementedInplaceOrViewFallback());
}

}  // namespace performer
