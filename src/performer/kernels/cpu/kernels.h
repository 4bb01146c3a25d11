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

/// Kernels by products of bfloat16 pairs, for what they serve.
struct PairKernels {
  const char* name;  // "amx", "avx512_bf16"
  bool (*serves)(const FavorProblem&);
  void (*forward)(const FavorProblem&, const ForwardOutputs&, const Executor&);
};

/// The kernels for this processor, or those that PERFORMER_CPU_KERNELS names (auto, portable, avx2,
/// avx512, avx512_bf16, amx); null for "off". Another value, or one the processor lacks, throws
/// std::invalid_argument. The variable is read at each call.
const CpuKernels* cpu_kernels();
/// Those to prefer for bfloat16 (auto, avx512_bf16, amx); null where there are none.
const PairKernels* pair_kernels();

const CpuKernels& portable_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();
const PairKernels& avx512_bf16_kernels();
const PairKernels& amx_kernels();

}  // namespace performer::kernels
