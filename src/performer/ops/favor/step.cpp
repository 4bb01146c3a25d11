#include "performer/ops/favor/step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "performer/ops/favor/fingerprint.h"
#include "performer/ops/favor/schema.h"

namespace performer {
namespace {

Tensor step_meta(const FavorArgs& a) {
  check_favor_step(a);
  return allocate_step(a);
}

FavorArgs step_args(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                    const FavorOptions& options) {
  TORCH_CHECK(q.defined() && k.defined() && v.defined() && options.initial_state.defined(),
              "favor_step_: q, k, v and the state must be defined tensors");
  TORCH_CHECK(!options.cu_seqlens_q.defined() && !options.cu_seqlens_k.defined(),
              "favor_step_: a step takes one token of each sequence, got cu_seqlens");
  FavorArgs args = favor_args(q, k, v, W, options);
  args.causal = true;
  args.op = "favor_step_";
  return args;
}

}  // namespace

std::pair<Tensor, FavorState> favor_step(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& W, const FavorState& state,
                                         FavorOptions options) {
  TORCH_CHECK(q.defined() && q.dim() == 4 && q.size(2) == 1,
              "favor_step: q must be one token, [batch, heads, 1, dim], got ",
              q.defined() ? q.sizes() : at::IntArrayRef());
  options.causality = Causality::kCausal;
  options.initial_state = state;
  return favor_attention_with_state(q, k, v, W, options);
}

Tensor favor_step_in_place(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                           const FavorOptions& options) {
  return call_favor_step(step_args(q, k, v, W, options));
}

void check_favor_state(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& W,
                       const FavorOptions& options) {
  const FavorArgs args = step_args(q, k, v, W, options);
  check_favor_args(args);
  if (args.state_fingerprint.defined()) check_state_fingerprint(args, favor_fingerprint(args));
}

TORCH_LIBRARY_IMPL(performer, Meta, m) { m.impl("favor_step_", kStepEntry<&step_meta>); }
TORCH_LIBRARY_IMPL(performer, Autograd, m) {
  m.impl("favor_step_", torch::autograd::autogradNotImplementedFallback());
}
TORCH_LIBRARY_IMPL(performer, ADInplaceOrView, m) {
  m.impl("favor_step_", torch::autograd::autogradNotImplementedInplaceOrViewFallback());
}

}  // namespace performer
