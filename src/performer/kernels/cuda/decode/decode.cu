#include "performer/kernels/cuda/decode/decode.h"

#include "performer/kernels/cuda/common/launch.h"
#include "performer/kernels/cuda/decode/head.cuh"

namespace performer::kernels::cuda::decode {
namespace {

constexpr std::int64_t kMostWidth = 256;

/// Blocks that a multiprocessor holds at once, by its shared memory: 228 KB, or less.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
constexpr int kResidentBlocks = 2;
#else
constexpr int kResidentBlocks = 3;
#endif

template <int kWidth, int kGroup>
__global__ void __launch_bounds__(kThreads, kGroup == 1 ? kResidentBlocks : 2)
    decode_step(const __grid_constant__ Step step) {
  extern __shared__ float4 decode_memory[];
  Head<kWidth, kGroup> head(step, reinterpret_cast<float*>(decode_memory));
#pragma unroll 1
  for (int first = 0; first < step.group; first += kGroup) head.run(first);
}

/// Few heads are cut so that every multiprocessor has a block, where clusters can join them.
int choose_splits(std::int64_t items, int features, const Device& device) {
  int splits = 1;
  while (splits < kMostSplits && items * splits < device.multiprocessors &&
         features >= 2 * splits * kLeastSplit) {
    splits *= 2;
  }
  return splits;
}

template <int kWidth, int kGroup>
cudaError_t launch_step(Step step, const Device& device, cudaStream_t stream) {
  const FavorProblem& p = step.problem;
  Plan& plan = step.plan;
  const std::int64_t items = p.sequences * p.state_heads;
  plan.splits = choose_splits(items, step.features, device);
  if (plan.splits > 1) {
    bool clusters = false;
    const auto error = has_clusters(decode_step<kWidth, kGroup>, device, clusters);
    if (error != cudaSuccess) return error;
    if (!clusters) plan.splits = 1;
  }
  plan.features = divide_up(step.features, plan.splits);
  plan.columns = step.value_dim / kWidth;
  plan.rows = kThreads / plan.columns;
  step.layout = make_layout(plan, p, kWidth, kGroup);
  const int bytes = step.layout.floats * static_cast<int>(sizeof(float));
  const Grid grid{items * plan.splits, kThreads, bytes, plan.splits, true};
  return launch(decode_step<kWidth, kGroup>, grid, stream, step);
}

}  // namespace

bool serves(const FavorProblem& p, const Device& device) {
  const bool map = p.map == Map::kExponential || p.map == Map::kRelu;
  return device.major >= 8 && map && p.causal && p.query_offsets == nullptr &&
         p.query_length == 1 && p.key_length == 1 && p.initial.kv != nullptr && p.dim > 0 &&
         p.dim <= kMostWidth && p.value_dim > 0 && p.value_dim <= kMostWidth;
}

cudaError_t step(const FavorProblem& problem, const TokenView& out, const StateView& state,
                 const Device& device, cudaStream_t stream) {
  const Step step = make_step(problem, out, state);
  const auto aligned = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool vectors =
      problem.value_dim % 4 == 0 && aligned(problem.initial.kv) && aligned(state.kv);
  if (vectors) {
    return step.group == 1 ? launch_step<4, 1>(step, device, stream)
                           : launch_step<4, 4>(step, device, stream);
  }
  return step.group == 1 ? launch_step<1, 1>(step, device, stream)
                         : launch_step<1, 4>(step, device, stream);
}

}  // namespace performer::kernels::cuda::decode
