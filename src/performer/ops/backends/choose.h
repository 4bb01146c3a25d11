#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "performer/ops/backends/switches.h"

namespace performer::backends {

/// What computes a call. choose.cpp has the table: their order, their passes and their switches.
enum class Path : std::uint8_t {
  kCudaDecode,
  kCudaHopper,
  kCudaPortable,
  kCpuAmx,
  kCpuAvx512Bf16,
  kCpuAvx512,
  kCpuAvx2,
  kCpuPortable,
  kComposed,
};

/// A step is a forward pass of one token after a state that no backward pass follows, be it asked
/// for by favor_attention or by favor_step_.
enum Pass : std::uint8_t { kForward = 1, kBackward = 2, kStep = 4 };

/// Of the table: the first path of the device that has the pass, serves under the switch, and of
/// which `serves` is true. The composed operator where there is none.
Path choose(Pass pass, at::DeviceType device, Switch chosen,
            const std::function<bool(Path)>& serves);

/// "cuda/hopper", "composed": what opens last_kernel().
const char* name(Path path);
/// kCPU, kCUDA; of the composed operator, which serves all devices, kMeta.
at::DeviceType device_of(Path path);

/// Whether a path can go on with the sums of another: weights must be divided by sums of these same
/// weights. The paths of the CPU round exponents alike.
bool rounds_alike(Path path, Path other);

}  // namespace performer::backends
