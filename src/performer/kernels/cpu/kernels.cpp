#include "performer/kernels/cpu/kernels.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace performer::kernels {
namespace {

constexpr const char* kVariable = "PERFORMER_CPU_KERNELS";

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

const CpuKernels* find(std::string_view name) {
#if defined(__x86_64__)
  static const bool avx2 = has_avx2();
  static const bool avx512 = has_avx512();
  if ((name == "auto" || name == "avx512") && avx512) return &avx512_kernels();
  if ((name == "auto" || name == "avx2") && avx2) return &avx2_kernels();
#endif
  return name == "auto" || name == "portable" ? &portable_kernels() : nullptr;
}

}  // namespace

const CpuKernels* cpu_kernels() {
  const char* value = std::getenv(kVariable);
  const std::string_view name = value == nullptr || *value == '\0' ? "auto" : value;
  if (name == "off") return nullptr;
  if (const CpuKernels* kernels = find(name)) return kernels;
  const bool known = name == "avx2" || name == "avx512";
  throw std::invalid_argument(std::string(kVariable) + "=" + std::string(name) +
                              (known ? " asks for instructions this processor does not have"
                                     : " is not one of auto, portable, avx2, avx512, off"));
}

}  // namespace performer::kernels
