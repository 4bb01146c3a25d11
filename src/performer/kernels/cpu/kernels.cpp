#include "performer/kernels/cpu/kernels.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace performer::kernels {
namespace {

constexpr const char* kVariable = "PERFORMER_CPU_KERNELS";

#if defined(__x86_64__)

bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1U << 29;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

// The processor has the tiles, and the kernel lets this process use them (Linux: to be asked for).
bool has_amx() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1U << 24, kBf16 = 1U << 22;
  if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kTiles) == 0 || (d & kBf16) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

#endif

struct Processor {
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx = false;
};

const Processor& processor() {
#if defined(__x86_64__)
  static const Processor found{has_avx2(), has_avx512(), has_avx512_bf16(), has_amx()};
#else
  static const Processor found;
#endif
  return found;
}

std::string requested() {
  const char* value = std::getenv(kVariable);
  return value == nullptr || *value == '\0' ? "auto" : value;
}

bool is_pair_name(std::string_view name) { return name == "avx512_bf16" || name == "amx"; }

}  // namespace

const CpuKernels* cpu_kernels() {
  const std::string name = requested();
  const Processor& has = processor();
  if (name == "off") return nullptr;
#if defined(__x86_64__)
  const bool pairs = (name == "avx512_bf16" && has.avx512_bf16) || (name == "amx" && has.amx);
  if (pairs || ((name == "auto" || name == "avx512") && has.avx512)) return &avx512_kernels();
  if ((name == "auto" || name == "avx2") && has.avx2) return &avx2_kernels();
#endif
  if (name == "auto" || name == "portable") return &portable_kernels();
  const bool known = name == "avx2" || name == "avx512" || is_pair_name(name);
  throw std::invalid_argument(
      std::string(kVariable) + "=" + name +
      (known ? " asks for instructions this processor does not have"
             : " is not one of auto, portable, avx2, avx512, avx512_bf16, amx, off"));
}

const PairKernels* pair_kernels() {
#if defined(__x86_64__)
  const std::string name = requested();
  const Processor& has = processor();
  if ((name == "auto" || name == "amx") && has.amx) return &amx_kernels();
  // On Intel's the dot product is slower than converting to float32 (measured: 2.3 times).
  const bool prefer_pairs = name == "avx512_bf16" || (name == "auto" && __builtin_cpu_is("amd"));
  if (prefer_pairs && has.avx512_bf16) return &avx512_bf16_kernels();
#endif
  return nullptr;
}

}  // namespace performer::kernels
