#include "performer/kernels/cuda/kernels.h"

#include "performer/kernels/cuda/hopper/hopper.h"
#include "performer/kernels/cuda/portable/portable.h"

namespace performer::kernels::cuda {

const char* name(Path path) { return path == Path::kHopper ? "hopper" : "portable"; }

bool serves_forward(Path path, const FavorProblem& problem, const Device& device) {
  if (path == Path::kHopper) return hopper::serves_forward(problem, device);
  return device.major >= 8 && portable::serves(problem);
}

bool serves_backward(Path path, const FavorProblem& problem, const Device& device) {
  if (path == Path::kHopper) return hopper::serves_backward(problem, device);
  // Gradients of a key that several state heads read would have to be added up.
  return device.major >= 8 && portable::serves(problem) && problem.state_heads == problem.key_heads;
}

std::size_t forward_workspace(Path path, const FavorProblem& problem, const Device& device) {
  return path == Path::kHopper ? hopper::forward_workspace(problem, device)
                               : portable::forward_workspace(problem, device);
}

std::size_t backward_workspace(Path path, const FavorProblem& problem, const Device& device) {
  return path == Path::kHopper ? hopper::backward_workspace(problem, device)
                               : portable::backward_workspace(problem, device);
}

cudaError_t forward(Path path, const FavorProblem& problem, const ForwardOutputs& outputs,
                    const Device& device, void* workspace, cudaStream_t stream) {
  const Run run{device, workspace, stream};
  return path == Path::kHopper ? hopper::forward(problem, outputs, run)
                               : portable::forward(problem, outputs, run);
}

cudaError_t backward(Path path, const FavorProblem& problem, const BackwardInputs& inputs,
                     const BackwardOutputs& outputs, const Device& device, void* workspace,
                     cudaStream_t stream) {
  const Run run{device, workspace, stream};
  return path == Path::kHopper ? hopper::backward(problem, inputs, outputs, run)
                               : portable::backward(problem, inputs, outputs, run);
}

}  // namespace performer::kernels::cuda
