#pragma once

#include "performer/kernels/cuda/decode/plan.h"

// The walk over rows of S: copies into shared memory that are under way while everything before
// them is computed. A thread reads what it copied itself, so that no barrier is needed.
namespace performer::kernels::cuda::decode {

template <int kWidth>
struct Vector;
template <>
struct Vector<4> {
  using Type = float4;
};
template <>
struct Vector<1> {
  using Type = float;
};

template <int kWidth>
__device__ __forceinline__ void copy_async(float* shared, const float* global) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (kWidth == 4) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
  }
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// All but the last kStages - 1 groups have arrived.
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
}

/// The block's rows [0, count) of S from `from` on; the thread has column `column` of rows `row`,
/// row + rows, ...
template <int kWidth>
class Ring {
 public:
  __device__ __forceinline__ Ring(float* shared, const Plan& plan, const float* from, int count)
      : slots_(shared + static_cast<int>(threadIdx.x) * kWidth),
        from_(from),
        stride_(plan.rows * plan.columns * kWidth),
        step_(plan.rows),
        stages_(plan.stages()),
        row_(static_cast<int>(threadIdx.x) / plan.columns),
        count_(row_ < plan.rows ? count : 0) {
    from_ += static_cast<int>(threadIdx.x) * kWidth;
  }

  /// Begins the first copies.
  __device__ __forceinline__ void begin() const {
#pragma unroll
    for (int batch = 0; batch < kStages; ++batch) {
      if (batch < stages_) issue(batch, batch);
      commit_copies();
    }
  }

  /// use(row, x, offset): x kWidth floats of S, `offset` where they lie behind `from`. Every row of
  /// the thread, in order; begin() comes before.
  template <class Use>
  __device__ __forceinline__ void walk(const Use& use) const {
    int stage = 0;
    for (int batch = 0; batch * kBatch * step_ < count_; ++batch) {
      wait_copies();
      typename Vector<kWidth>::Type x[kBatch];
#pragma unroll
      for (int n = 0; n < kBatch; ++n) {
        x[n] = *reinterpret_cast<const typename Vector<kWidth>::Type*>(slot(stage, n));
      }
#pragma unroll
      for (int n = 0; n < kBatch; ++n) {
        const int at = batch * kBatch + n, row = row_ + at * step_;
        if (row < count_) {
          use(row, reinterpret_cast<const float(&)[kWidth]>(x[n]),
              static_cast<int>(threadIdx.x) * kWidth + at * stride_);
        }
      }
      issue(batch + stages_, stage);
      commit_copies();
      if (++stage == stages_) stage = 0;
    }
  }

 private:
  __device__ __forceinline__ float* slot(int stage, int n) const {
    return slots_ + (stage * kBatch + n) * kThreads * kWidth;
  }
  __device__ __forceinline__ void issue(int batch, int stage) const {
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const int at = batch * kBatch + n;
      if (row_ + at * step_ < count_) copy_async<kWidth>(slot(stage, n), from_ + at * stride_);
    }
  }

  float* slots_;
  const float* from_;
  int stride_, step_, stages_, row_, count_;
};

}  // namespace performer::kernels::cuda::decode
