#include "performer/ops/backends/cpu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <string>

#include "performer/kernels/cpu/kernels.h"
#include "performer/ops/backends/idle_threads.h"
#include "performer/ops/backends/pointers.h"
#include "performer/ops/last_kernel.h"

namespace performer {
namespace {

kernels::Executor executor() {
  const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return {threads, [](int tasks, void (*body)(void*, int), void* context) {
            at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
              for (auto task = begin; task < end; ++task) body(context, static_cast<int>(task));
            });
          }};
}

std::string path(const char* isa) { return std::string("cpu/") + isa; }

// Null where the composed operator serves. Read once a call: the environment may change.
const kernels::CpuKernels* kernels_for(const FavorArgs& a) {
  const bool served = a.q.is_cpu() && a.q.scalar_type() != at::kDouble &&
                      a.map() != FeatureMap::kTrigonometric && a.renormalize;
  return served ? kernels::cpu_kernels() : nullptr;
}

}  // namespace

bool served_by_cpu_kernels(const FavorArgs& a) { return kernels_for(a) != nullptr; }

bool forward_cpu(const FavorArgs& args, const FavorResult& r) {
  if (args.q.is_cpu()) let_idle_threads_sleep();
  const kernels::CpuKernels* kernels = kernels_for(args);
  if (kernels == nullptr) return false;
  const KernelCall call(args);
  const kernels::PairKernels* pairs = kernels::pair_kernels();
  if (pairs != nullptr && pairs->serves(call.problem)) {
    pairs->forward(call.problem, forward_outputs(r), executor());
    set_last_kernel(kernel_name(path(pairs->name), args));
  } else {
    kernels->forward(call.problem, forward_outputs(r), executor());
    set_last_kernel(kernel_name(path(kernels->name), args));
  }
  return true;
}

bool backward_cpu(const FavorSaved& saved, const FavorArgs& args, const FavorGradients& grads) {
  const kernels::CpuKernels* kernels = kernels_for(args);
  if (kernels == nullptr || needs_composed_backward(saved, args)) return false;
  const KernelCall call(args);
  const KernelBackward pass(saved, args, grads);
  if (!kernels->backward(call.problem, pass.inputs, pass.outputs, executor())) return false;
  set_last_kernel(kernel_name(path(kernels->name), args));
  return true;
}

}  // namespace performer
