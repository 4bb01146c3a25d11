#include "performer/kernels/cpu/entry.h"

namespace performer::kernels {

const CpuKernels& avx2_kernels() {
  static constexpr CpuKernels kKernels{avx2::forward, avx2::backward};
  return kKernels;
}

}  // namespace performer::kernels
