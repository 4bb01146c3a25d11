#pragma once

#include <cstdint>

#include "performer/kernels/cuda/common/problem.h"
#include "performer/kernels/cuda/common/splits.h"

// How a step is laid out over blocks, threads and shared memory.
namespace performer::kernels::cuda::decode {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kSlice = 512;  // features whose coefficients lie in shared memory at once
inline constexpr int kOwned = kSlice / kThreads;  // features of a slice that a thread owns
inline constexpr int kBatch = 4;                  // vectors that a thread takes at a time
inline constexpr int kStages = 4;                 // batches under way: 64 KB a block
inline constexpr int kMostSplits = 8;             // blocks of a cluster
inline constexpr int kLeastSplit = 32;            // features that are worth a block

/// Blocks: state heads x splits. A split has the features [split * features, ...) of a state, and
/// the splits of a state are a cluster. A row of S has `columns` vectors of kWidth floats; the
/// block takes `rows` rows at a time, one vector a thread.
struct Plan {
  int splits = 1, features = 0;
  int columns = 0, rows = 0;

  __host__ __device__ int slice() const { return features < kSlice ? features : kSlice; }
  __host__ __device__ int stages() const {
    const int batches = divide_up(divide_up(slice(), rows), kBatch);
    return batches < kStages ? batches : kStages;
  }
};

/// Where things lie in shared memory, in floats from its start, in this order:
///   ring [stages][batch][thread] vectors; after the walk: sums of rows [group][rows][dv]
///   x [1 + group][dim]: the key, the queries, filled up with 0 to a multiple of 4      v [dv]
///   u [1 + group][slice]: W x, then the key's features and the queries' weights
///   factor [slice]    parts [2 group][warps]    num [group][dv]    den, shift [group]    reached
struct Layout {
  int x = 0, dim = 0, v = 0, u = 0, slice = 0, factor = 0, parts = 0, num = 0, den = 0, shift = 0;
  int reached = 0, floats = 0;
};
inline Layout make_layout(const Plan& plan, const FavorProblem& p, int width, int group) {
  const auto align = [](int n) { return divide_up(n, 4) * 4; };
  const int dv = static_cast<int>(p.value_dim);
  const int ring = plan.stages() * kBatch * kThreads * width;
  const int sums = align(group * plan.rows * dv);
  Layout at;
  at.dim = align(static_cast<int>(p.dim)), at.slice = align(plan.slice());
  at.x = ring > sums ? ring : sums;
  at.v = at.x + (1 + group) * at.dim;
  at.u = at.v + align(dv);
  at.factor = at.u + (1 + group) * at.slice;
  at.parts = at.factor + at.slice;
  at.num = at.parts + 2 * group * kWarps;
  at.den = at.num + align(group * dv);
  at.shift = at.den + group;
  at.reached = at.shift + group;
  at.floats = at.reached + 1;
  return at;
}

/// How many heads share one of a parameter or of the keys: head h reads h / share.
struct Shares {
  int key = 1;                  // state heads of a key head
  int w_key = 1, bias_key = 1;  // state heads of a parameter's
  int w_query = 1, bias_query = 1;
};
inline Shares make_shares(const FavorProblem& p) {
  const auto share = [](std::int64_t heads, std::int64_t of) {
    return static_cast<int>(heads / of);
  };
  return {share(p.state_heads, p.key_heads), share(p.state_heads, p.w_key.heads),
          share(p.state_heads, p.bias_key.heads), share(p.heads, p.w_query.heads),
          share(p.heads, p.bias_query.heads)};
}

/// A step with everything a block needs, passed by value.
struct Step {
  Problem problem;
  TokenView out;
  StateView state;  // after the token
  Shares shares;
  int heads = 1;  // of the state
  int group = 1;  // query heads of a state head
  int dim = 1, value_dim = 1, features = 1;
  Plan plan;
  Layout layout;
};
inline Step make_step(const FavorProblem& p, const TokenView& out, const StateView& state) {
  Step step;
  step.problem = make_problem(p);
  step.out = out, step.state = state;
  step.shares = make_shares(p);
  step.heads = static_cast<int>(p.state_heads);
  step.group = static_cast<int>(p.heads / p.state_heads);
  step.dim = static_cast<int>(p.dim), step.value_dim = static_cast<int>(p.value_dim);
  step.features = static_cast<int>(p.features);
  return step;
}

}  // namespace performer::kernels::cuda::decode
