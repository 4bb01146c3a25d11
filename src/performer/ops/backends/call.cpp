#include "performer/ops/backends/call.h"

#include "performer/ops/backends/cpu.h"
#include "performer/ops/backends/cuda.h"

namespace performer::backends {
namespace {

constexpr std::int64_t kMaxCudaWidth = 256;

// What no kernel of the device computes, whatever its path. Nothing else is looked at then, the
// environment neither.
bool composed_only(const FavorArgs& a) {
  if (a.q.scalar_type() == at::kDouble || !a.renormalize) return true;
  const FeatureMap map = a.map();
  if (a.q.is_cpu()) return map == FeatureMap::kTrigonometric;
  return !a.q.is_cuda() || a.near > 0 || !has_cuda_kernels() ||
         !(is_exponential_map(map) || map == FeatureMap::kRelu) || a.q.size(3) > kMaxCudaWidth ||
         a.v.size(3) > kMaxCudaWidth || a.v.size(3) == 0;
}

// Of the initial state's tensors, or from the final state.
bool has_state_gradient(const FavorSaved& saved) {
  bool any = false;
  for (Tensor FavorArgs::*of :
       {&FavorArgs::state_kv, &FavorArgs::state_normalizer, &FavorArgs::state_near_keys,
        &FavorArgs::state_near_values, &FavorArgs::state_near_bias}) {
    any = any || saved.needs_gradient(of);
  }
  for (const Tensor* grad : {&saved.grad_kv, &saved.grad_normalizer, &saved.grad_near_keys,
                             &saved.grad_near_values, &saved.grad_near_bias}) {
    any = any || grad->defined();
  }
  return any;
}

bool needs_composed_backward(const FavorSaved& saved, const FavorArgs& args) {
  bool needed = args.state_heads() != args.k.size(1);
  for_each_field(fields_with<kFavorFields, kComposedGradient>(),
                 [&](const auto& field) { needed = needed || saved.needs_gradient(field.member); });
  needed = needed || (args.near > 0 && has_state_gradient(saved));
  return needed || (args.q.is_cuda() && !saved.result.out.defined());
}

// Offsets from the host would be copied once, into the graph, and never again.
void check_capture(const FavorArgs& a) {
  const bool on_device = !a.packed() || (a.cu_seqlens_q.is_cuda() && a.cu_seqlens_k.is_cuda());
  TORCH_CHECK(on_device || !capturing_cuda_graph(a.q.device()),
              "favor_attention: cu_seqlens must be on the device of q, ", a.q.device(),
              ", while a CUDA graph is captured, got ", a.cu_seqlens_q.device(), " and ",
              a.cu_seqlens_k.device());
}

bool is_step(const FavorArgs& a) {
  return !a.for_backward && a.causal && !a.packed() && a.q.size(2) == 1 && a.state_kv.defined();
}

}  // namespace

const KernelCall& Call::pointers() const {
  if (!pointers_) {
    check_capture(args_);
    pointers_.emplace(args_);
  }
  return *pointers_;
}

Path Call::forward_path() const {
  if (composed_only(args_)) return Path::kComposed;
  return choose_for(is_step(args_) ? kStep : kForward, kernel_switch(args_.q.device().type()));
}

Path Call::backward_path(const FavorSaved& saved) const {
  if (composed_only(args_)) return Path::kComposed;
  const Switch chosen = kernel_switch(args_.q.device().type());
  return needs_composed_backward(saved, args_) ? Path::kComposed : choose_for(kBackward, chosen);
}

Path Call::choose_for(Pass pass, Switch chosen) const {
  const Path path = choose(pass, args_.q.device().type(), chosen,
                           [&](Path candidate) { return serves(candidate, pass, chosen); });
  if (path == Path::kComposed && chosen == kHopper && serves(Path::kCudaPortable, pass, chosen)) {
    refuse_hopper(args_, pass);
  }
  return path;
}

bool Call::serves(Path path, Pass pass, Switch chosen) const {
  return device_of(path) == at::kCUDA ? serves_cuda(path, pass, *this)
                                      : serves_cpu(path, chosen, *this);
}

}  // namespace performer::backends
