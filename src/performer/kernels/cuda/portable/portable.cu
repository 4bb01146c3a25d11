#include "performer/kernels/cuda/portable/portable.h"

#include "performer/kernels/cuda/portable/attend.h"
#include "performer/kernels/cuda/portable/causal/causal.h"
#include "performer/kernels/cuda/portable/gradients.h"
#include "performer/kernels/cuda/portable/splits.h"
#include "performer/kernels/cuda/portable/state.h"

namespace performer::kernels::cuda::portable {
namespace {

constexpr std::int64_t kMostWidth = 256;
constexpr std::int64_t kForwardBytes = 36LL << 20;   // of partial states
constexpr std::int64_t kBackwardBytes = 14LL << 20;  // of those of the gradient

struct ForwardPlan {
  int splits;
  Partials partials;

  ForwardPlan(const FavorProblem& p, const Device& device, Workspace& workspace)
      : splits(state_splits(p, p.key_length, kForwardBytes, device)),
        partials(take_partials(workspace, p, splits)) {}
};

struct BackwardPlan {
  float* along;  // [B, H, Lq]
  int splits;
  Partials partials;

  BackwardPlan(const FavorProblem& p, const Device& device, Workspace& workspace)
      : along(workspace.take<float>(p.batch * p.heads * p.query_length)),
        splits(state_splits(p, p.heads / p.state_heads * p.query_length, kBackwardBytes, device)),
        partials(take_partials(workspace, p, splits)) {}
};

bool served_parameter(const Parameter& parameter, bool needed) {
  return parameter.data == nullptr ? !needed : !parameter.wide;
}

}  // namespace

bool serves(const FavorProblem& p) {
  const bool exponential = p.map == Map::kExponential;
  if (!exponential && p.map != Map::kRelu) return false;
  if (p.dim < 1 || p.dim > kMostWidth || p.value_dim < 1 || p.value_dim > kMostWidth) return false;
  if (p.features < 1 || (p.w_query.data == nullptr) != (p.w_key.data == nullptr)) return false;
  return served_parameter(p.w_query, exponential) && served_parameter(p.w_key, exponential) &&
         served_parameter(p.bias_query, false) && served_parameter(p.bias_key, false);
}

std::size_t forward_workspace(const FavorProblem& problem, const Device& device) {
  if (problem.causal) return causal_forward_workspace(problem, device);
  Workspace workspace(nullptr);
  const ForwardPlan plan(problem, device, workspace);
  return workspace.bytes();
}

std::size_t backward_workspace(const FavorProblem& problem, const Device& device) {
  if (problem.causal) return causal_backward_workspace(problem, device);
  Workspace workspace(nullptr);
  const BackwardPlan plan(problem, device, workspace);
  return workspace.bytes();
}

cudaError_t forward(const FavorProblem& problem, const ForwardOutputs& outputs, const Run& run) {
  if (problem.causal) return causal_forward(problem, outputs, run);
  Workspace workspace(run.workspace);
  const ForwardPlan plan(problem, run.device, workspace);
  const StateView& state = outputs.state;
  Partials partials = plan.partials;
  if (plan.splits == 1) partials = {state.kv, state.normalizer, state.log2_scale};
  cudaError_t error = launch_key_states(problem, run.device, plan.splits, partials, run.stream);
  if (error != cudaSuccess) return error;
  error = launch_merge_states(problem, problem.initial, plan.splits, partials, state, run.stream);
  if (error != cudaSuccess) return error;
  return launch_attend(problem, state, outputs, run.device, run.stream);
}

cudaError_t backward(const FavorProblem& problem, const BackwardInputs& inputs,
                     const BackwardOutputs& outputs, const Run& run) {
  if (problem.causal) return causal_backward(problem, inputs, outputs, run);
  Workspace workspace(run.workspace);
  const BackwardPlan plan(problem, run.device, workspace);
  const StateView& sums = outputs.sums;
  if (sums.kv == nullptr || sums.normalizer == nullptr) return cudaErrorInvalidValue;

  // The out of 16-bit calls is rounded: along would be off by as much where differences cancel.
  const bool rounded = problem.dtype != Dtype::kFloat || inputs.out.data == nullptr;
  cudaError_t error =
      rounded ? launch_exact_along(problem, inputs.state, inputs.grad_out, plan.along, run.device,
                                   run.stream)
              : launch_along(problem, inputs.out, inputs.grad_out, plan.along, run.stream);
  if (error != cudaSuccess) return error;

  Partials partials = plan.partials;
  if (plan.splits == 1) partials = {sums.kv, sums.normalizer, nullptr};
  partials.log2_scale = nullptr;  // all in the scales of the final state
  error = launch_gradient_sums(problem, inputs, plan.along, plan.splits, partials, run.stream);
  if (error != cudaSuccess) return error;
  error = launch_merge_states(problem, inputs.grad_state, plan.splits, partials, sums, run.stream);
  if (error != cudaSuccess) return error;

  error = launch_query_gradient(problem, inputs, plan.along, outputs.q, run.stream);
  if (error != cudaSuccess) return error;
  error = launch_key_gradient(problem, inputs.state, sums, outputs.k, outputs.v, run.stream);
  if (error != cudaSuccess || outputs.state.normalizer == nullptr) return error;
  return launch_initial_gradient(problem, inputs, sums, outputs.state, run.stream);
}

}  // namespace performer::kernels::cuda::portable
