#include "performer/kernels/cpu/entry.h"

namespace performer::kernels {

const CpuKernels& avx512_kernels() {
  static constexpr CpuKernels kKernels{avx512::forward, avx512::backward};
  return kKernels;
}

}  // namespace performer::kernels
