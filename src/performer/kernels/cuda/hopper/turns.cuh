#pragma once

#include "performer/kernels/cuda/hopper/ptx.cuh"

namespace performer::kernels::cuda::hopper {

/// Warpgroups issue their matrix products one after the other, in a circle. Left alone they fall
/// into step: all multiply, then all take exponentials, and the two units wait for each other.
class Turns {
 public:
  __device__ Turns(int count, int mine) : count_(count), mine_(mine) {
    if (mine == count - 1) arrive_at(0);
  }

  __device__ void take() const {
    asm volatile("bar.sync %0, 256;" ::"r"(kFirst + mine_) : "memory");
  }
  __device__ void pass() const { arrive_at(mine_ + 1 == count_ ? 0 : mine_ + 1); }
  /// The last turn of all is passed to no one.
  __device__ void pass_but_last(bool last_round) const {
    if (!(last_round && mine_ + 1 == count_)) pass();
  }

 private:
  static constexpr int kFirst = 8;  // of the named barriers

  __device__ static void arrive_at(int who) {
    asm volatile("bar.arrive %0, 256;" ::"r"(kFirst + who) : "memory");
  }

  int count_, mine_;
};

}  // namespace performer::kernels::cuda::hopper
