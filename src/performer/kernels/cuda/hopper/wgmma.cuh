#pragma once

#include <cstdint>

// wgmma: D[64, N] += A[64, 16] B[16, N] by one warpgroup, float32 accumulators. Warp w has rows
// 16w .. 16w+15; thread `lane` of it D[16w + lane/4 + 8h][8j + 2(lane%4) + i] in d[4j + 2h + i]. A
// register operand A lies the same way: two blocks j of D, rounded and paired, are four registers.
namespace performer::kernels::cuda::hopper {

__device__ inline void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// All but the last kPending groups are complete.
template <int kPending>
__device__ inline void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// How B lies in shared memory: contiguous along the depth, or along its N rows.
enum class Order { kDepth, kRows };

// The accumulators d[0], d[1], ... of a product: as the instruction names them, and as operands.
#define PERFORMER_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PERFORMER_NAMES_20 PERFORMER_NAMES_16 ", %16, %17, %18, %19"
#define PERFORMER_NAMES_32 \
  PERFORMER_NAMES_20 ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PERFORMER_NAMES_36 PERFORMER_NAMES_32 ", %32, %33, %34, %35"
#define PERFORMER_NAMES_64                                                        \
  PERFORMER_NAMES_36                                                              \
  ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
  "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PERFORMER_NAMES_68 PERFORMER_NAMES_64 ", %64, %65, %66, %67"

#define PERFORMER_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PERFORMER_SIXTEEN(i) \
  PERFORMER_FOUR(i), PERFORMER_FOUR(i + 4), PERFORMER_FOUR(i + 8), PERFORMER_FOUR(i + 12)
#define PERFORMER_SUMS_16 PERFORMER_SIXTEEN(0)
#define PERFORMER_SUMS_20 PERFORMER_SUMS_16, PERFORMER_FOUR(16)
#define PERFORMER_SUMS_32 PERFORMER_SUMS_16, PERFORMER_SIXTEEN(16)
#define PERFORMER_SUMS_36 PERFORMER_SUMS_32, PERFORMER_FOUR(32)
#define PERFORMER_SUMS_64 PERFORMER_SUMS_32, PERFORMER_SIXTEEN(32), PERFORMER_SIXTEEN(48)
#define PERFORMER_SUMS_68 PERFORMER_SUMS_64, PERFORMER_FOUR(64)

// One instruction. The flag `add` becomes a predicate; without it, D = A B.
#define PERFORMER_WGMMA(TYPE, N, D, A, B, ADD, ORDERS)                                             \
  "{.reg .pred p; setp.ne.b32 p, " ADD ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE \
  "." TYPE " {" PERFORMER_NAMES_##D "}, " A ", " B ", p, 1, 1, " ORDERS ";}"

// mma of D accumulators, which are N columns: one function with A in registers, one with A in
// shared memory, contiguous along the depth. D1, D2, ... are the numbers of the operands after D.
#define PERFORMER_MMA(N, D, D1, D2, D3, D4, D5, D6)                                               \
  template <bool kHalf, Order kB = Order::kDepth>                                                 \
  __device__ inline void mma(float(&d)[D], const std::uint32_t* a, std::uint64_t b, bool add) {   \
    if constexpr (kHalf) {                                                                        \
      asm volatile(                                                                               \
          PERFORMER_WGMMA("f16", N, D, PERFORMER_LEFT(D, D1, D2, D3), "%" #D4, "%" #D5, "%" #D6)  \
          : PERFORMER_SUMS_##D                                                                    \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),       \
            "n"(static_cast<int>(kB)));                                                           \
    } else {                                                                                      \
      asm volatile(                                                                               \
          PERFORMER_WGMMA("bf16", N, D, PERFORMER_LEFT(D, D1, D2, D3), "%" #D4, "%" #D5, "%" #D6) \
          : PERFORMER_SUMS_##D                                                                    \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),       \
            "n"(static_cast<int>(kB)));                                                           \
    }                                                                                             \
  }                                                                                               \
  template <bool kHalf, Order kB = Order::kDepth>                                                 \
  __device__ inline void mma(float(&d)[D], std::uint64_t a, std::uint64_t b, bool add) {          \
    if constexpr (kHalf) {                                                                        \
      asm volatile(PERFORMER_WGMMA("f16", N, D, "%" #D, "%" #D1, "%" #D2, "0, %" #D3)             \
                   : PERFORMER_SUMS_##D                                                           \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(kB)));      \
    } else {                                                                                      \
      asm volatile(PERFORMER_WGMMA("bf16", N, D, "%" #D, "%" #D1, "%" #D2, "0, %" #D3)            \
                   : PERFORMER_SUMS_##D                                                           \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(kB)));      \
    }                                                                                             \
  }
#define PERFORMER_LEFT(A0, A1, A2, A3) "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}"

PERFORMER_MMA(32, 16, 17, 18, 19, 20, 21, 22)
PERFORMER_MMA(40, 20, 21, 22, 23, 24, 25, 26)
PERFORMER_MMA(64, 32, 33, 34, 35, 36, 37, 38)
PERFORMER_MMA(72, 36, 37, 38, 39, 40, 41, 42)
PERFORMER_MMA(128, 64, 65, 66, 67, 68, 69, 70)
PERFORMER_MMA(136, 68, 69, 70, 71, 72, 73, 74)

// By type, and mma_rows of bfloat16 numbers with B contiguous along its N rows. A as for mma.
template <class Left, int kCount>
__device__ inline void mma_f16(float (&d)[kCount], Left a, std::uint64_t b, bool add) {
  mma<true>(d, a, b, add);
}
template <class Left, int kCount>
__device__ inline void mma_bf16(float (&d)[kCount], Left a, std::uint64_t b, bool add) {
  mma<false>(d, a, b, add);
}
template <class Left, int kCount>
__device__ inline void mma_rows(float (&d)[kCount], Left a, std::uint64_t b, bool add) {
  mma<false, Order::kRows>(d, a, b, add);
}

}  // namespace performer::kernels::cuda::hopper
