#include "performer/kernels/cpu/entry.h"

namespace performer::kernels {

const CpuKernels& portable_kernels() {
  static constexpr CpuKernels kKernels{portable::forward, portable::backward};
  return kKernels;
}

}  // namespace performer::kernels
