#include "performer/kernels/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace performer::kernels {
namespace {

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

}  // namespace

bool processor_has(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return processor().avx2;
    case Isa::kAvx512:
      return processor().avx512;
    case Isa::kAvx512Bf16:
      return processor().avx512_bf16;
    case Isa::kAmx:
      return processor().amx;
    default:
      return true;
  }
}

bool is_worth_it([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  // On Intel's the dot product is slower than converting to float32 (measured: 2.3 times).
  return isa != Isa::kAvx512Bf16 || __builtin_cpu_is("amd");
#else
  return true;
#endif
}

const CpuKernels& cpu_kernels([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512_kernels();
  if (isa == Isa::kAvx2) return avx2_kernels();
#endif
  return portable_kernels();
}

const PairKernels* pair_kernels([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return &amx_kernels();
  if (isa == Isa::kAvx512Bf16) return &avx512_bf16_kernels();
#endif
  return nullptr;
}

}  // namespace performer::kernels
