#include "performer/kernels/cpu/forward_bf16.h"
#include "performer/kernels/cpu/kernels.h"

namespace performer::kernels {

const PairKernels& avx512_bf16_kernels() {
  static constexpr PairKernels kKernels{avx512_bf16::serves_pairs, avx512_bf16::pair_forward};
  return kKernels;
}

}  // namespace performer::kernels
