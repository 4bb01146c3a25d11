#include "performer/ops/favor/step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <cstdint>
#include <vector>

#include "performer/ops/backends/cuda_step.h"
#include "performer/ops/favor/fingerprint.h"
#include "performer/ops/favor/schema.h"

// The operator favor_step_: the decode kernel where it serves, else the whole pass over one token,
// its state copied into place.
namespace performer {
namespace {

constexpr auto kWrittenFields = select<kFavorFields, kWrittenInStep>();

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
    Tensor tensor;
  };
  std::vector<Named> written, read;
  for_each_tensor(kStepFields, [&](const auto& field) {
    auto& list = (field.roles & kWrittenInStep) != 0 ? written : read;
    list.push_back({field.name, a.*field.member});
  });
  const auto check = [&](const Named& to, const Named& other) {
    if (!other.tensor.defined()) return;
    TORCH_CHECK(!Span(to.tensor).meets(Span(other.tensor)), a.op, ": ", to.name,
                " is written in place and must not share memory with ", other.name);
  };
  for (std::size_t i = 0; i < written.size(); ++i) {
    for (std::size_t j = i + 1; j < written.size(); ++j) check(written[i], written[j]);
    for (const Named& other : read) check(written[i], other);
  }
}

void check_step(const FavorArgs& a) {
  check_favor_args(a);
  TORCH_CHECK(a.q.sym_size(2) == 1, a.op, ": q must be one token, [batch, heads, 1, dim], got ",
              a.q.sym_sizes());
  TORCH_CHECK(a.state_kv.defined(), a.op, ": state_kv must be a defined tensor");
  for_each_field(kWrittenFields, [&](const auto& field) {
    const Tensor& t = a.*field.member;
    TORCH_CHECK(t.is_contiguous(), a.op, ": ", field.name,
                " is written in place and must be contiguous, got strides ", t.sym_strides());
  });
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
  return call_favor_step(step_args(q, k, v, W, state, options));
}

void check_favor_state(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                       const FavorState& state, FavorOptions options) {
  FavorArgs a = step_args(q, k, v, W, state, options);
  a.op = "favor_step_";
  check_favor_args(a);
  if (a.state_fingerprint.defined()) check_state_fingerprint(a, favor_fingerprint(a));
}

TORCH_LIBRARY_IMPL(performer, CPU, m) { m.impl("favor_step_", step_kernel<&step_kernels>); }
TORCH_LIBRARY_IMPL(performer, CUDA, m) { m.impl("favor_step_", step_kernel<&step_kernels>); }
TORCH_LIBRARY_IMPL(performer, Meta, m) { m.impl("favor_step_", step_kernel<&step_meta>); }
TORCH_LIBRARY_IMPL(performer, Autograd, m) {
  m.impl("favor_step_", torch::autograd::autogradNotImplementedFallback());
}
TORCH_LIBRARY_IMPL(performer, ADInplaceOrView, m) {
  m.impl("favor_step_", torch::autograd::autogradNotImplementedInplaceOrViewFallback());
}

}  // namespace performer
