#include "performer/kernels/cpu/forward_bf16.h"
#include "performer/kernels/cpu/kernels.h"

namespace performer::kernels {

const PairKernels& amx_kernels() {
  static constexpr PairKernels kKernels{amx::serves_pairs, amx::pair_forward};
  return kKernels;
}

}  // namespace performer::kernels
