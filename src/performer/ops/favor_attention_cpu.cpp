#include "performer/ops/favor_attention_cpu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <string>

#include "performer/kernels/cpu/kernels.h"
#include "performer/ops/last_kernel.h"

namespace performer {
namespace {

using kernels::FavorProblem;

kernels::Map kernel_map(FeatureMap map) {
  using kernels::Map;
  switch (map) {
    case FeatureMap::kRelu:
      return Map::kRelu;
    case FeatureMap::kExp:
      return Map::kExp;
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
    default:
      return Map::kExponential;
  }
}

kernels::Dtype kernel_dtype(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return kernels::Dtype::kBfloat16;
  return dtype == at::kHalf ? kernels::Dtype::kHalf : kernels::Dtype::kFloat;
}

const char* dtype_name(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return "bf16";
  return dtype == at::kHalf ? "fp16" : "fp32";
}

kernels::TokenView token_view(const Tensor& t) {
  return {t.data_ptr(), t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

/// The call in plain pointers, and the tensors that keep those alive.
struct Call {
  FavorProblem problem;
  PackedOffsets offsets;
  std::vector<Tensor> kept;

  explicit Call(const FavorArgs& a) {
    FavorProblem& p = problem;
    const FeatureMap map = a.map();
    p.map = kernel_map(map);
    p.dtype = kernel_dtype(a.q.scalar_type());
    p.causal = a.causal;
    p.norm_term = map == FeatureMap::kPositive || map == FeatureMap::kHyperbolic;
    p.mirrored = map == FeatureMap::kHyperbolic;
    p.scale = a.resolved_scale();
    p.eps = a.resolved_eps();
    p.batch = a.q.size(0), p.heads = a.q.size(1);
    p.key_heads = a.k.size(1), p.state_heads = a.state_heads().expect_int();
    p.dim = a.q.size(3), p.value_dim = a.v.size(3);
    p.features = a.num_features().expect_int();
    p.query_length = a.q.size(2), p.key_length = a.k.size(2);
    p.sequences = a.num_states().expect_int();
    if (a.packed()) {
      offsets = check_packed_offsets(a);
      p.query_offsets = offsets.q.const_data_ptr<std::int64_t>();
      p.key_offsets = offsets.k.const_data_ptr<std::int64_t>();
    }
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
    if (a.state_kv.defined()) {
      p.initial = {state_tensor(a.state_kv), state_tensor(a.state_normalizer),
                   keep(a.state_log2_scale.contiguous()).data_ptr<std::int32_t>()};
    }
  }

 private:
  const Tensor& keep(Tensor t) { return kept.emplace_back(std::move(t)); }

  float* state_tensor(const Tensor& t) { return keep(t.contiguous()).data_ptr<float>(); }

  kernels::Parameter parameter(const Tensor& t, std::int64_t trailing) {
    if (!t.defined()) return {};
    const Tensor& p = keep(t.contiguous());
    return {p.const_data_ptr(), p.scalar_type() == at::kDouble,
            p.dim() == trailing ? 1 : p.size(0)};
  }

  void set_key_bias(const Tensor& bias) {
    const Tensor& b = keep((bias.dim() == 2 ? bias.unsqueeze(1) : bias).to(at::kFloat));
    problem.key_bias = b.const_data_ptr<float>();
    problem.key_bias_heads = b.size(1);
    problem.key_bias_batch = b.stride(0);
    problem.key_bias_head = b.stride(1);
    problem.key_bias_token = b.stride(2);
  }
};

kernels::Executor executor() {
  const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return {threads, [](int tasks, void (*body)(void*, int), void* context) {
            at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
              for (auto task = begin; task < end; ++task) body(context, static_cast<int>(task));
            });
          }};
}

std::string kernel_name(const char* isa, const FavorArgs& a) {
  return std::string("cpu/") + isa + "/" + dtype_name(a.q.scalar_type()) + "/" + a.feature_map +
         (a.causal ? "/causal" : "/bidirectional");
}

kernels::StateView state_view(const Tensor& kv, const Tensor& normalizer) {
  return {kv.data_ptr<float>(), normalizer.data_ptr<float>(), nullptr};
}

// Null where the composed operator serves. Read once a call: the environment may change.
const kernels::CpuKernels* kernels_for(const FavorArgs& a) {
  const bool served = a.q.is_cpu() && a.q.scalar_type() != at::kDouble &&
                      a.map() != FeatureMap::kTrigonometric && a.renormalize;
  return served ? kernels::cpu_kernels() : nullptr;
}

}  // namespace

bool served_by_cpu_kernels(const FavorArgs& a) { return kernels_for(a) != nullptr; }

bool forward_cpu(const FavorArgs& args, const FavorResult& r) {
  const kernels::CpuKernels* kernels = kernels_for(args);
  if (kernels == nullptr) return false;
  const Call call(args);
  kernels::StateView state = state_view(r.kv, r.normalizer);
  state.log2_scale = r.log2_scale.data_ptr<std::int32_t>();
  const kernels::ForwardOutputs outputs{token_view(r.out), r.row_sum.data_ptr<float>(),
                                        r.row_log2_scale.data_ptr<std::int32_t>(), state};
  const kernels::PairKernels* pairs = kernels::pair_kernels();
  if (pairs != nullptr && pairs->serves(call.problem)) {
    pairs->forward(call.problem, outputs, executor());
    set_last_kernel(kernel_name(pairs->name, args));
  } else {
    kernels->forward(call.problem, outputs, executor());
    set_last_kernel(kernel_name(kernels->name, args));
  }
  return true;
}

bool backward_cpu(const FavorSaved& saved, const FavorArgs& args, const FavorGradients& grads) {
  const kernels::CpuKernels* kernels = kernels_for(args);
  if (kernels == nullptr || args.state_heads() != args.k.size(1)) return false;
  for (const auto which : {kProjection, kProjectionK, kBiasQ, kBiasK, kKeyBias}) {
    if (saved.needs[which]) return false;
  }
  const Call call(args);
  const FavorResult& r = saved.result;
  const Tensor kv = r.kv.contiguous(), normalizer = r.normalizer.contiguous();
  const Tensor log2_scale = r.log2_scale.contiguous();
  const Tensor row_sum = r.row_sum.contiguous(), row_log2 = r.row_log2_scale.contiguous();
  const Tensor grad_out = saved.grad_out.to(args.q.scalar_type());
  kernels::BackwardInputs in{token_view(grad_out),
                             row_sum.const_data_ptr<float>(),
                             row_log2.const_data_ptr<std::int32_t>(),
                             state_view(kv, normalizer),
                             {}};
  in.state.log2_scale = log2_scale.data_ptr<std::int32_t>();
  Tensor grad_kv, grad_normalizer;
  if (saved.grad_kv.defined() || saved.grad_normalizer.defined()) {
    grad_kv = saved.grad_kv.defined() ? saved.grad_kv.contiguous() : at::zeros_like(kv);
    grad_normalizer = saved.grad_normalizer.defined() ? saved.grad_normalizer.contiguous()
                                                      : at::zeros_like(normalizer);
    in.grad_state = state_view(grad_kv, grad_normalizer);
  }
  kernels::BackwardOutputs out{
      token_view(grads[kQ]), token_view(grads[kK]), token_view(grads[kV]), {}, {}};
  if (saved.needs[kStateKv]) out.state = state_view(grads[kStateKv], grads[kStateNormalizer]);
  Tensor sum_kv, sum_normalizer;
  if (!args.causal) {
    sum_kv = at::empty_like(kv), sum_normalizer = at::empty_like(normalizer);
    out.sums = state_view(sum_kv, sum_normalizer);
  }
  if (!kernels->backward(call.problem, in, out, executor())) return false;
  set_last_kernel(kernel_name(kernels->name, args));
  return true;
}

}  // namespace performer
