#pragma once

#include "performer/kernels/params.h"

/// The fused FAVOR+ kernels of the CPU, one set per instruction set in the same binary.
namespace performer::kernels {

struct CpuKernels {
  const char* name;  // "avx512", "avx2", "portable"
  void (*forward)(const FavorProblem&, const ForwardOutputs&, const Executor&);
  /// Gradients of q, k, v and the initial state. Needs state_heads == key_heads. False where norms
  /// outgrow the range of the pass: the outputs are then undefined.
  bool (*backward)(const FavorProblem&, const BackwardInputs&, const BackwardOutputs&,
                   const Executor&);
};

/// The kernels for this processor, or those that PERFORMER_CPU_KERNELS names (auto, portable, avx2,
/// avx512); null for "off". Another value, or one the processor lacks, throws
/// std::invalid_argument. The variable is read at each call.
const CpuKernels* cpu_kernels();

const CpuKernels& portable_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();

}  // namespace performer::kernels
