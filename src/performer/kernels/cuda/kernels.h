#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "performer/kernels/params.h"

// The fused FAVOR+ kernels on CUDA. Every pointer of a FavorProblem is device memory here, the
// packed offsets too, and parameters are float32. Nothing synchronises: every call can be captured
// in a graph. Bits are equal from run to run on equal devices.
namespace performer::kernels::cuda {

/// What the choice of a path and of a grid depends on.
struct Device {
  int index = 0;
  int major = 0, minor = 0;
  int multiprocessors = 0;
};

/// The calling thread's current device. Properties are read once per device.
cudaError_t current_device(Device& device);

/// portable: any GPU from sm_80 on, what portable.cu serves. hopper: wgmma and TMA, compute capability 9.0.
enum class Path : std::uint8_t { kPortable, kHopper };
const char* name(Path path);

/// Whether `path` can compute the call on the device.
bool serves_forward(Path path, const FavorProblem& problem, const Device& device);
bool serves_backward(Path path, const FavorProblem& problem, const Device& device);

/// Bytes of device memory a call needs beside its arguments, aligned to 256 bytes.
std::size_t forward_workspace(Path path, const FavorProblem& problem, const Device& device);
std::size_t backward_workspace(Path path, const FavorProblem& problem, const Device& device);

cudaError_t forward(Path path, const FavorProblem& problem, const ForwardOutputs& outputs,
                    const Device& device, void* workspace, cudaStream_t stream);
cudaError_t backward(Path path, const FavorProblem& problem, const BackwardInputs& inputs,
                     const BackwardOutputs& outputs, const Device& device, void* workspace,
                     cudaStream_t stream);

}  // namespace performer::kernels::cuda
