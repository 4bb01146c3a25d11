#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "performer/ops/backends/call.h"
#include "performer/ops/backends/composed.h"
#include "performer/ops/backends/cpu.h"
#include "performer/ops/backends/cuda.h"
#include "performer/ops/backends/idle_threads.h"
#include "performer/ops/backends/replay.h"
#include "performer/ops/favor/fingerprint.h"
#include "performer/ops/favor/schema.h"
#include "performer/ops/last_kernel.h"

// The registered operators on the CPU and on CUDA: check, allocate, and let the path that serves
// the call (choose.h) compute it.
namespace performer::backends {
namespace {

void note(Path path, const FavorArgs& args) {
  if (path == Path::kComposed) {
    set_last_composed();
  } else {
    set_last_kernel(kernel_name(name(path), args));
  }
}

void run_forward(Path path, const Call& call, const FavorResult& r) {
  const FavorArgs& args = call.args();
  if (path == Path::kCudaDecode) {
    step_cuda(call, r.out, {r.kv, r.normalizer, r.log2_scale, {}});
  } else if (device_of(path) == at::kCUDA) {
    forward_cuda(path, call, r);
  } else if (device_of(path) == at::kCPU) {
    forward_cpu(path, call, with_rows(args, r));
  } else {
    forward_composed(args, with_rows(args, r));
  }
  note(path, args);
}

FavorResult forward_dispatch(const FavorArgs& given) {
  check_favor_args(given);
  check_favor_values(given);
  const FavorArgs args = with_own_offsets(given);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  FavorResult r = allocate_result(args);
  r.fingerprint = favor_fingerprint(args);
  check_state_fingerprint(args, r.fingerprint);
  if (args.q.is_cpu()) let_idle_threads_sleep();
  const Call call(args);
  run_forward(call.forward_path(), call, r);
  return r;
}

FavorGradients backward_dispatch(const FavorSaved& saved, const FavorArgs& given) {
  check_favor_args(given);
  check_favor_saved(saved, given);
  check_favor_values(given);
  check_saved_values(saved, given);
  const FavorArgs args = with_own_offsets(given);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  FavorGradients grads = allocate_gradients(args, saved.needs);
  const Call call(args);
  Path path = call.backward_path(saved);
  if (device_of(path) == at::kCPU) {
    if (backward_cpu(path, call, saved, grads)) {
      note(path, args);
      return grads;
    }
    path = Path::kComposed;
  }
  const bool own = rounds_alike(path, call.forward_path());
  const FavorSaved left =
      own ? saved : replay_forward(saved, args, [&](const FavorArgs&, const FavorResult& r) {
        run_forward(path, call, r);
      });
  if (path == Path::kComposed) {
    backward_composed(left, args, grads);
  } else {
    backward_cuda(path, call, left, grads);
  }
  note(path, args);
  return grads;
}

// The next state goes over the given one: by the decode kernel itself, else by copies.
Tensor step_dispatch(const FavorArgs& args) {
  check_favor_step(args);
  check_own_memory(args);
  check_favor_values(args);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Call call(args);
  const Path path = call.forward_path();
  if (path == Path::kCudaDecode) {
    Tensor out = allocate_step(args);
    step_cuda(call, out, {args.state_kv, args.state_normalizer, args.state_log2_scale, {}});
    note(path, args);
    return out;
  }
  if (args.q.is_cpu()) let_idle_threads_sleep();
  const FavorResult r = allocate_result(args);
  run_forward(path, call, r);
  args.state_kv.copy_(r.kv);
  args.state_normalizer.copy_(r.normalizer);
  args.state_log2_scale.copy_(r.log2_scale);
  if (args.near > 0) {
    args.state_near_keys.copy_(r.near_keys);
    args.state_near_values.copy_(r.near_values);
    args.state_near_bias.copy_(r.near_bias);
    args.state_near_position.copy_(r.near_position);
  }
  return r.out;
}

}  // namespace

TORCH_LIBRARY_IMPL(performer, CPU, m) {
  m.impl("favor_attention", kForwardEntry<&forward_dispatch>);
  m.impl("favor_attention_backward", kBackwardEntry<&backward_dispatch>);
  m.impl("favor_step_", kStepEntry<&step_dispatch>);
}

TORCH_LIBRARY_IMPL(performer, CUDA, m) {
  m.impl("favor_attention", kForwardEntry<&forward_dispatch>);
  m.impl("favor_attention_backward", kBackwardEntry<&backward_dispatch>);
  m.impl("favor_step_", kStepEntry<&step_dispatch>);
}

}  // namespace performer::backends
