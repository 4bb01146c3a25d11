#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace performer::backends {

/// The values of PERFORMER_CPU_KERNELS and PERFORMER_CUDA_KERNELS, as bits, so that a path can name
/// those that it serves under. `auto` is the best path that serves; a named one is that path, or
/// for the CPU's bfloat16 paths that one and float32's of the same width; `off` is the composed
/// operator.
enum Switch : std::uint8_t {
  kAuto = 1,
  kPortable = 2,
  kAvx2 = 4,
  kAvx512 = 8,
  kAvx512Bf16 = 16,
  kAmx = 32,
  kHopper = 64,
  kOff = 128,
};

/// What the variable of the device says now: it is read at each call. Another value than its device
/// knows, or one that asks for instructions that the processor lacks, throws: std::invalid_argument
/// for the CPU, c10::Error for CUDA.
Switch kernel_switch(at::DeviceType device);

}  // namespace performer::backends
