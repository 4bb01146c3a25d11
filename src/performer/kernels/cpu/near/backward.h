#pragma once

#include "performer/kernels/cpu/near/backward_keys.h"
#include "performer/kernels/cpu/near/walk.h"

// The backward pass with a near field: a walk over queries with the sums of the keys far from them,
// then one over keys with those of the rows.
namespace performer::kernels::PERFORMER_ISA {

inline bool near_backward(const FavorProblem& p, const BackwardInputs& in,
                          const BackwardOutputs& out, const Executor& executor) {
  const Sizes s(p);
  using Queries = NearWalk<BackwardQueries, NearBackwardArgs, BackwardKeys>;
  using KeyWalk = NearWalk<BackwardKeys, NearBackwardArgs>;
  Queries queries(p, s, p.causal ? Far::kBefore : Far::kBoth, executor);
  KeyWalk keys(p, s, p.causal ? Far::kAfter : Far::kBoth, executor);
  const auto facts = round_up(RowFacts::floats(p), kLine);
  const auto room = most(queries.room_floats(), keys.room_floats());
  auto* memory =
      static_cast<float*>(call_workspace(static_cast<std::size_t>(facts + room) * sizeof(float)));
  const NearBackwardArgs args{in, out, RowFacts::in(memory, p)};
  queries.run(p.initial, args, memory + facts);
  keys.run({}, args, memory + facts, !p.causal);  // causal or cut: sums of rows are formed anew
  return true;
}

}  // namespace performer::kernels::PERFORMER_ISA
