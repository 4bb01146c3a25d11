#include "performer/ops/backends/pointers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace performer::backends {
namespace {

using kernels::FavorProblem;
using kernels::Map;

Map to_kernel_map(FeatureMap map) {
  switch (map) {
    case FeatureMap::kRelu:
      return Map::kRelu;
    case FeatureMap::kSigmoid:
      return Map::kSigmoid;
    case FeatureMap::kAbs:
      return Map::kAbs;
    case FeatureMap::kGelu:
      return Map::kGelu;
    case FeatureMap::kCos:
      return Map::kCos;
    case FeatureMap::kTanh:
      return Map::kTanh;
    case FeatureMap::kIdentity:
      return Map::kIdentity;
    case FeatureMap::kSquare:
      return Map::kSquare;
    case FeatureMap::kElu1:
      return Map::kElu1;
    case FeatureMap::kSgn:
      return Map::kSgn;
    case FeatureMap::kPositive:
    case FeatureMap::kLoglinear:
    case FeatureMap::kHyperbolic:
    case FeatureMap::kTrigonometric:  // which no kernel serves
    case FeatureMap::kExp:
      return Map::kExponential;
  }
  TORCH_INTERNAL_ASSERT(false, "a feature map without a place among the kernels' maps");
}

kernels::Dtype kernel_dtype(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return kernels::Dtype::kBfloat16;
  return dtype == at::kHalf ? kernels::Dtype::kHalf : kernels::Dtype::kFloat;
}

const char* dtype_name(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return "bf16";
  return dtype == at::kHalf ? "fp16" : "fp32";
}

// Offsets [N + 1] as int64 on the device. From pageable memory they go without waiting: a copy of
// so few bytes is staged before the call returns. Pinned memory would be read later, when its owner
// may have changed it.
Tensor device_offsets(const Tensor& offsets, at::Device device) {
  const bool staged = offsets.is_cpu() && !offsets.is_pinned();
  return offsets.to(offsets.options().device(device).dtype(at::kLong), /*non_blocking=*/staged)
      .contiguous();
}

// Contiguous, and aligned as a tensor of its own is: kernels read 16 bytes at a time.
Tensor aligned(const Tensor& t) {
  const Tensor c = t.contiguous();
  return reinterpret_cast<std::uintptr_t>(c.const_data_ptr()) % 16 == 0 ? c : c.clone();
}

}  // namespace

KernelCall::KernelCall(const FavorArgs& a) {
  FavorProblem& p = problem;
  const FeatureMap map = a.map();
  p.map = to_kernel_map(map);
  p.dtype = kernel_dtype(a.q.scalar_type());
  p.causal = a.causal;
  p.norm_term = map == FeatureMap::kPositive || map == FeatureMap::kHyperbolic;
  p.mirrored = map == FeatureMap::kHyperbolic;
  p.scale = a.resolved_scale();
  p.eps = is_softmax_map(map) ? 0 : a.resolved_eps();
  p.batch = a.q.size(0), p.heads = a.q.size(1);
  p.key_heads = a.k.size(1), p.state_heads = a.state_heads().expect_int();
  p.dim = a.q.size(3), p.value_dim = a.v.size(3);
  p.features = a.num_features().expect_int();
  p.query_length = a.q.size(2), p.key_length = a.k.size(2);
  p.sequences = a.num_states().expect_int();
  if (a.packed()) set_offsets(a);
  p.q = token_view(a.q), p.k = token_view(a.k), p.v = token_view(a.v);
  p.w_query = parameter(a.projection, 2);
  p.w_key = parameter(a.key_projection(), 2);
  p.bias_query = parameter(a.bias_q, 1);
  p.bias_key = parameter(a.bias_k, 1);
  if (a.key_mask.defined()) {
    p.key_mask = a.key_mask.const_data_ptr<bool>();
    p.mask_batch = a.key_mask.stride(0), p.mask_token = a.key_mask.stride(1);
  }
  if (a.key_bias.defined()) set_key_bias(a.key_bias);
  if (a.near > 0) set_near(a);
  if (a.state_kv.defined()) {
    p.initial = {state_tensor(a.state_kv), state_tensor(a.state_normalizer),
                 keep(a.state_log2_scale.contiguous()).data_ptr<std::int32_t>()};
  }
}

Tensor KernelCall::keep(Tensor t) { return kept.emplace_back(std::move(t)); }

float* KernelCall::state_tensor(const Tensor& t) { return keep(aligned(t)).data_ptr<float>(); }

kernels::Parameter KernelCall::parameter(const Tensor& t, std::int64_t trailing) {
  if (!t.defined()) return {};
  const Tensor p = keep((t.is_cuda() ? t.to(at::kFloat) : t).contiguous());
  return {p.const_data_ptr(), p.scalar_type() == at::kDouble, p.dim() == trailing ? 1 : p.size(0)};
}

void KernelCall::set_key_bias(const Tensor& bias) {
  const Tensor b = keep((bias.dim() == 2 ? bias.unsqueeze(1) : bias).to(at::kFloat));
  problem.key_bias = b.const_data_ptr<float>();
  problem.key_bias_heads = b.size(1);
  problem.key_bias_batch = b.stride(0);
  problem.key_bias_head = b.stride(1);
  problem.key_bias_token = b.stride(2);
}

void KernelCall::set_near(const FavorArgs& a) {
  problem.near = a.near;
  problem.far_log2 = -std::log2(static_cast<double>(std::max<std::int64_t>(1, problem.features)));
  if (a.query_bias.defined()) {
    const Tensor& given = a.query_bias;
    const Tensor b = keep((given.dim() == 2 ? given.unsqueeze(1) : given).to(at::kFloat));
    problem.query_bias = {b.const_data_ptr<float>(), b.size(1), b.stride(0), b.stride(1),
                          b.stride(2)};
  }
  if (!a.state_near_keys.defined()) return;
  problem.near_initial = near_state_view(
      keep(a.state_near_keys.contiguous()), keep(a.state_near_values.contiguous()),
      keep(a.state_near_bias.contiguous()), keep(a.state_near_position.contiguous()));
}

void KernelCall::set_offsets(const FavorArgs& a) {
  Tensor q = a.cu_seqlens_q, k = a.cu_seqlens_k;
  if (a.q.is_cpu() || (q.is_cpu() && k.is_cpu())) {
    const PackedOffsets checked = check_packed_offsets(a);
    q = checked.q, k = checked.k;
  }
  const auto device = a.q.device();
  const bool shared = q.is_same(k);
  q = keep(device_offsets(q, device));
  k = shared ? q : keep(device_offsets(k, device));
  problem.query_offsets = q.const_data_ptr<std::int64_t>();
  problem.key_offsets = k.const_data_ptr<std::int64_t>();
}

kernels::TokenView token_view(const Tensor& t) {
  return {t.data_ptr(), t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

kernels::StateView state_view(const Tensor& kv, const Tensor& normalizer,
                              const Tensor& log2_scale) {
  return {kv.data_ptr<float>(), normalizer.data_ptr<float>(),
          log2_scale.defined() ? log2_scale.data_ptr<std::int32_t>() : nullptr};
}

kernels::NearStateView near_state_view(const Tensor& keys, const Tensor& values, const Tensor& bias,
                                       const Tensor& position) {
  return {keys.data_ptr<float>(), values.data_ptr<float>(), bias.data_ptr<float>(),
          position.data_ptr<std::int64_t>()};
}

std::string kernel_name(const std::string& path, const FavorArgs& a) {
  return path + "/" + dtype_name(a.q.scalar_type()) + "/" + a.feature_map +
         (a.causal ? "/causal" : "/bidirectional") + (a.near > 0 ? "/near" : "");
}

namespace {

kernels::NearStateView near_state(const FavorResult& r) {
  if (r.near_position.numel() == 0 && r.near_keys.numel() == 0) return {};
  return near_state_view(r.near_keys, r.near_values, r.near_bias, r.near_position);
}

}  // namespace

kernels::ForwardOutputs forward_outputs(const FavorResult& r) {
  return {token_view(r.out), r.row_sum.data_ptr<float>(), r.row_log2_scale.data_ptr<std::int32_t>(),
          state_view(r.kv, r.normalizer, r.log2_scale), near_state(r)};
}

Tensor KernelBackward::keep(Tensor t) { return kept.emplace_back(std::move(t)); }

KernelBackward::KernelBackward(const FavorSaved& saved, const FavorArgs& args,
                               const FavorGradients& grads) {
  const FavorResult& r = saved.result;
  const Tensor kv = keep(aligned(r.kv)), normalizer = keep(aligned(r.normalizer));
  inputs.grad_out = token_view(keep(saved.grad_out.to(args.q.scalar_type())));
  inputs.row_sum = keep(r.row_sum.contiguous()).const_data_ptr<float>();
  inputs.row_log2_scale = keep(r.row_log2_scale.contiguous()).const_data_ptr<std::int32_t>();
  inputs.state = state_view(kv, normalizer, keep(r.log2_scale.contiguous()));
  if (r.out.defined()) inputs.out = token_view(r.out);
  if (saved.grad_kv.defined() || saved.grad_normalizer.defined()) {
    const auto given_or_zero = [&](const Tensor& grad, const Tensor& like) {
      return keep(grad.defined() ? aligned(grad) : at::zeros_like(like));
    };
    inputs.grad_state = state_view(given_or_zero(saved.grad_kv, kv),
                                   given_or_zero(saved.grad_normalizer, normalizer));
  }
  outputs.q = token_view(grads[gradient_of(&FavorArgs::q)]);
  outputs.k = token_view(grads[gradient_of(&FavorArgs::k)]);
  outputs.v = token_view(grads[gradient_of(&FavorArgs::v)]);
  if (saved.needs_gradient(&FavorArgs::state_kv)) {
    outputs.state = state_view(grads[gradient_of(&FavorArgs::state_kv)],
                               grads[gradient_of(&FavorArgs::state_normalizer)]);
  }
  if (!args.causal) {
    outputs.sums = state_view(keep(at::empty_like(kv)), keep(at::empty_like(normalizer)));
  }
}

}  // namespace performer::backends
