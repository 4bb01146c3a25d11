#include "performer/ops/favor/step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <cstdint>
#include <iterator>
#include <string>

#include "performer/ops/backends/cuda_step.h"
#include "performer/ops/favor/call.h"
#include "performer/ops/favor/fingerprint.h"
#include "performer/ops/favor/schema.h"

// The operator favor_step_: the decode kernel where it serves, else the whole pass over one token,
// its state copied into place.
namespace performer {
namespace {

// The bytes from a tensor's first element to its last, which a write may reach.
struct Span {
  std::uintptr_t begin = 0, end = 0;

  explicit Span(const Tensor& t) {
    if (t.numel() == 0) return;
    begin = end = reinterpret_cast<std::uintptr_t>(t.const_data_ptr());
    std::int64_t last = 1;
    for (std::int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
    end += static_cast<std::uintptr_t>(last) * t.element_size();
  }
  bool meets(const Span& other) const { return begin < other.end && other.begin < end; }
};

// What is written in place is nobody else's memory: a token read after it was written, or a scale
// written as a sum, would be wrong without a word.
void check_own_memory(const FavorArgs& a) {
  struct Named {
    const char* name;
    const Tensor& tensor;
  };
  const Named written[] = {{"state_kv", a.state_kv},
                           {"state_normalizer", a.state_normalizer},
                           {"state_log2_scale", a.state_log2_scale}};
  const Named read[] = {{"q", a.q},
                        {"k", a.k},
                        {"v", a.v},
                        {"projection", a.projection},
                        {"key_mask", a.key_mask},
                        {"projection_k", a.projection_k},
                        {"bias_q", a.bias_q},
                        {"bias_k", a.bias_k},
                        {"key_bias", a.key_bias}};
  const auto check = [&](const Named& to, const Named& other) {
    if (!other.tensor.defined()) return;
    TORCH_CHECK(!Span(to.tensor).meets(Span(other.tensor)), a.op, ": ", to.name,
                " is written in place and must not share memory with ", other.name);
  };
  for (std::size_t i = 0; i < std::size(written); ++i) {
    for (std::size_t j = i + 1; j < std::size(written); ++j) check(written[i], written[j]);
    for (const Named& other : read) check(written[i], other);
  }
}

void check_step(const FavorArgs& a) {
  check_favor_args(a);
  TORCH_CHECK(a.q.sym_size(2) == 1, a.op, ": q must be one token, [batch, heads, 1, dim], got ",
              a.q.sym_sizes());
  TORCH_CHECK(a.state_kv.defined(), a.op, ": state_kv must be a defined tensor");
  const auto check = [&](const Tensor& t, const char* name) {
    TORCH_CHECK(t.is_contiguous(), a.op, ": ", name,
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
  check_own_memory(a);
  check_favor_values(a);
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
  a.op = "favor_step_";
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
  FavorArgs a = step_args(q, k, v, W, state, options);
  a.op = "favor_step_";
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
