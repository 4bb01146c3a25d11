#include "performer/kernels/cuda/portable/causal.h"

#include <algorithm>

#include "performer/kernels/cuda/portable/causal_call.cuh"

namespace performer::kernels::cuda::portable {
namespace {

constexpr int kBlocksPerMultiprocessor = 2;
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20U;

int tiles(std::int64_t n) { return static_cast<int>((n + kTile - 1) / kTile); }

std::size_t state_bytes(const CausalCall& call) {
  return static_cast<std::size_t>(call.state_slots() * call.slot_floats()) * sizeof(float);
}
std::size_t bytes(const CausalCall& call) {
  const auto scratch = static_cast<std::size_t>(call.blocks * call.scratch_floats());
  return (state_bytes(call) + scratch * sizeof(float) + 255) / 256 * 256;
}

std::size_t along_bytes(const FavorProblem& p) {
  if (along_waits_in_keys(p)) return 0;
  return static_cast<std::size_t>(p.batch * p.heads * p.query_length) * sizeof(float);
}

CausalCall planned(const FavorProblem& problem, const Device& device, void* workspace) {
  CausalCall call = make_causal_call(problem, device);
  call.states = static_cast<float*>(workspace);
  call.scratch = reinterpret_cast<float*>(static_cast<char*>(workspace) + state_bytes(call));
  return call;
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
  return bytes(make_causal_call(problem, device));
}

cudaError_t causal_forward(const FavorProblem& problem, const ForwardOutputs& outputs,
                           const Device& device, void* workspace, cudaStream_t stream) {
  const CausalCall call = planned(problem, device, workspace);
  if (call.items == 0) return cudaSuccess;
  const cudaError_t error = launch_states_before(call, stream);
  return error != cudaSuccess ? error : launch_causal_outputs(call, outputs, stream);
}

std::size_t causal_backward_workspace(const FavorProblem& problem, const Device& device) {
  return bytes(make_causal_call(problem, device)) + along_bytes(problem);
}

cudaError_t causal_backward(const FavorProblem& problem, const BackwardInputs& inputs,
                            const BackwardOutputs& outputs, const Device& device, void* workspace,
                            cudaStream_t stream) {
  CausalCall call = planned(problem, device, workspace);
  if (call.items == 0) return cudaSuccess;
  call.keys_along = outputs.k;
  if (along_bytes(problem) > 0) {
    call.along = reinterpret_cast<float*>(static_cast<char*>(workspace) + bytes(call));
  }
  cudaError_t error = launch_states_before(call, stream);
  if (error == cudaSuccess) error = launch_query_gradients(call, inputs, outputs, stream);
  if (error == cudaSuccess) error = launch_gradients_after(call, inputs, stream);
  return error != cudaSuccess ? error : launch_key_gradients(call, inputs, outputs, stream);
}

}  // namespace performer::kernels::cuda::portable
