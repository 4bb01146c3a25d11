#pragma once

#include <cstdint>

#include "performer/kernels/params.h"

/// The fused FAVOR+ kernels of the CPU, one set per instruction set in the same binary.
namespace performer::kernels {

struct CpuKernels {
  void (*forward)(const FavorProblem&, const ForwardOutputs&, const Executor&);
  /// Gradients of q, k, v and the initial state. Needs state_heads == key_heads. False where norms
  /// outgrow the range of the pass: the outputs are then undefined.
  bool (*backward)(const FavorProblem&, const BackwardInputs&, const BackwardOutputs&,
                   const Executor&);
};

/// Kernels by products of bfloat16 pairs, for what they serve.
struct PairKernels {
  bool (*serves)(const FavorProblem&);
  void (*forward)(const FavorProblem&, const ForwardOutputs&, const Executor&);
};

enum class Isa : std::uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// Whether this processor has the instructions, and the system lets the process use them.
bool processor_has(Isa isa);
/// Whether its kernels are the quicker ones where the processor has it.
bool is_worth_it(Isa isa);

/// Those of kPortable, kAvx2 or kAvx512, which the processor must have.
const CpuKernels& cpu_kernels(Isa isa);
/// Those of kAvx512Bf16 or kAmx, which the processor must have; null for the others.
const PairKernels* pair_kernels(Isa isa);

const CpuKernels& portable_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();
const PairKernels& avx512_bf16_kernels();
const PairKernels& amx_kernels();

}  // namespace performer::kernels
