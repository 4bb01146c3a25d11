#pragma once

#include <cuda.h>

#include <cstdint>

// Hopper's instructions that have no name in CUDA C++: barriers with transaction counts, bulk
// copies, proxy fences, warpgroup registers.
namespace performer::kernels::cuda::hopper {

using Barrier = std::uint64_t;  // in shared memory

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ inline void init(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}

/// Before the first use by threads that did not initialise the barriers.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

__device__ inline void arrive_expecting(Barrier* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ inline void wait(Barrier* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Contiguous bytes (a multiple of 16), completing on the barrier.
__device__ inline void bulk_load(void* to, const void* from, std::uint32_t bytes,
                                 Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

/// A box of a tensor, completing on the barrier.
__device__ inline void tensor_load(void* to, const CUtensorMap* map, int c0, int c1, int c2, int c3,
                                   Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4, %5}], [%6];" ::"r"(shared_address(to)),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(shared_address(barrier))
      : "memory");
}

/// A box in shared memory to a tensor. store_commit() follows, and store_wait() before the box is
/// written again.
__device__ inline void tensor_store(const CUtensorMap* map, int c0, int c1, int c2, int c3,
                                    const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
          map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(shared_address(from))
      : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void store_wait() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// 8 x 8 blocks of 16-bit numbers, held as wgmma's accumulators are, into shared memory: lane 8 b +
/// i names where row i of block b goes.
__device__ inline void store_blocks(std::uint32_t to, std::uint32_t b0, std::uint32_t b1,
                                    std::uint32_t b2, std::uint32_t b3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(b0), "r"(b1), "r"(b2), "r"(b3)
               : "memory");
}

/// Ordinary writes to shared memory before, tensor cores' reads after.
__device__ inline void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// The 128 threads of one warpgroup.
__device__ inline void sync_warpgroup(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}
/// Two warpgroups.
__device__ inline void sync_warpgroups(int id) {
  asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory");
}

/// 8 x 8 blocks of 16-bit numbers, held as wgmma's accumulators are, into shared memory transposed:
/// lane 8 b + i names where column i of block b goes, 16 bytes.
__device__ inline void store_transposed(std::uint32_t to, std::uint32_t b0, std::uint32_t b1,
                                        std::uint32_t b2, std::uint32_t b3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(b0), "r"(b1), "r"(b2), "r"(b3)
               : "memory");
}
__device__ inline void store_transposed(std::uint32_t to, std::uint32_t b0, std::uint32_t b1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(b0),
               "r"(b1)
               : "memory");
}

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ inline void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/// 1 / x to one unit in the last place or two.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The bfloat16 pair (low, high).
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline std::uint32_t pack_f16(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace performer::kernels::cuda::hopper
