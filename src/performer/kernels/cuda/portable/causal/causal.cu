#include "performer/kernels/cuda/portable/causal/causal.h"

#include <algorithm>

#include "performer/kernels/cuda/common/splits.h"
#include "performer/kernels/cuda/common/workspace.h"
#include "performer/kernels/cuda/portable/causal/call.cuh"

namespace performer::kernels::cuda::portable {
namespace {

constexpr int kBlocksPerMultiprocessor = 2;
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20U;

int tiles(std::int64_t n) { return static_cast<int>(divide_up(n, kTile)); }

/// The plan of a call with its memory.
CausalCall planned(const FavorProblem& problem, const Device& device, Workspace& workspace) {
  CausalCall call = make_causal_call(problem, device);
  const std::int64_t states = call.state_slots() * call.slot_floats();
  call.states = workspace.take<float>(states + call.blocks * call.scratch_floats());
  if (call.states != nullptr) call.scratch = call.states + states;
  return call;
}

float* take_along(const FavorProblem& p, Workspace& workspace) {
  const std::int64_t rows = p.batch * p.heads * p.query_length;
  return along_waits_in_keys(p) || rows == 0 ? nullptr : workspace.take<float>(rows);
}

}  // namespace

CausalCall make_causal_call(const FavorProblem& problem, const Device& device) {
  CausalCall call;
  call.problem = make_problem(problem);
  call.items = problem.sequences * problem.state_heads;
  call.group = static_cast<int>(problem.heads / problem.state_heads);
  call.slices = tiles(problem.features);
  call.value_blocks = tiles(problem.value_dim);
  call.dim_blocks = tiles(problem.dim);
  if (call.items == 0) return call;
  // As many blocks as the device holds at once, fewer where their memory would be large, yet never
  // fewer than multiprocessors. Items beyond them take turns; items below are cut into segments of
  // two chunks at least.
  const std::int64_t block_bytes =
      (call.slot_floats() + call.scratch_floats()) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t multiprocessors = std::max(1, device.multiprocessors);
  const std::int64_t most = std::clamp(kMostBytes / block_bytes, multiprocessors,
                                       kBlocksPerMultiprocessor * multiprocessors);
  const std::int64_t longest = std::max<std::int64_t>(1, problem.key_length / (2 * kTile));
  call.segments = static_cast<int>(std::clamp<std::int64_t>(most / call.items, 1, longest));
  call.blocks = static_cast<int>(std::min(most, call.works()));
  return call;
}

std::size_t causal_forward_workspace(const FavorProblem& problem, const Device& device) {
  Workspace workspace(nullptr);
  planned(problem, device, workspace);
  return workspace.bytes();
}

cudaError_t causal_forward(const FavorProblem& problem, const ForwardOutputs& outputs,
                           const Run& run) {
  Workspace workspace(run.workspace);
  const CausalCall call = planned(problem, run.device, workspace);
  if (call.items == 0) return cudaSuccess;
  const cudaError_t error = launch_states_before(call, run.stream);
  return error != cudaSuccess ? error : launch_causal_outputs(call, outputs, run.stream);
}

std::size_t causal_backward_workspace(const FavorProblem& problem, const Device& device) {
  Workspace workspace(nullptr);
  planned(problem, device, workspace);
  take_along(problem, workspace);
  return workspace.bytes();
}

cudaError_t causal_backward(const FavorProblem& problem, const BackwardInputs& inputs,
                            const BackwardOutputs& outputs, const Run& run) {
  Workspace workspace(run.workspace);
  CausalCall call = planned(problem, run.device, workspace);
  if (call.items == 0) return cudaSuccess;
  call.keys_along = outputs.k;
  call.along = take_along(problem, workspace);
  cudaError_t error = launch_states_before(call, run.stream);
  if (error == cudaSuccess) error = launch_query_gradients(call, inputs, outputs, run.stream);
  if (error == cudaSuccess) error = launch_gradients_after(call, inputs, run.stream);
  return error != cudaSuccess ? error : launch_key_gradients(call, inputs, outputs, run.stream);
}

}  // namespace performer::kernels::cuda::portable
