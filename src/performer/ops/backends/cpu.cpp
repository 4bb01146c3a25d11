#include "performer/ops/backends/cpu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "performer/kernels/cpu/kernels.h"

namespace performer::backends {
namespace {

using kernels::Isa;

kernels::Executor executor() {
  const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return {threads, [](int tasks, void (*body)(void*, int), void* context) {
            at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
              for (auto task = begin; task < end; ++task) body(context, static_cast<int>(task));
            });
          }};
}

Isa isa_of(Path path) {
  switch (path) {
    case Path::kCpuAmx:
      return Isa::kAmx;
    case Path::kCpuAvx512Bf16:
      return Isa::kAvx512Bf16;
    case Path::kCpuAvx512:
      return Isa::kAvx512;
    case Path::kCpuAvx2:
      return Isa::kAvx2;
    default:
      return Isa::kPortable;
  }
}

}  // namespace

bool serves_cpu(Path path, Switch chosen, const Call& call) {
  const Isa isa = isa_of(path);
  if (!kernels::processor_has(isa)) return false;
  if (chosen == kAuto && !kernels::is_worth_it(isa)) return false;
  const kernels::PairKernels* pairs = kernels::pair_kernels(isa);
  return pairs == nullptr || pairs->serves(call.pointers().problem);
}

void forward_cpu(Path path, const Call& call, const FavorResult& r) {
  const Isa isa = isa_of(path);
  const kernels::PairKernels* pairs = kernels::pair_kernels(isa);
  const auto forward = pairs != nullptr ? pairs->forward : kernels::cpu_kernels(isa).forward;
  forward(call.pointers().problem, forward_outputs(r), executor());
}

bool backward_cpu(Path path, const Call& call, const FavorSaved& saved,
                  const FavorGradients& grads) {
  const KernelBackward pass(saved, call.args(), grads);
  return kernels::cpu_kernels(isa_of(path))
      .backward(call.pointers().problem, pass.inputs, pass.outputs, executor());
}

}  // namespace performer::backends
