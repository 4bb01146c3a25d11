#pragma once

#include "performer/kernels/cpu/state.h"
#include "performer/kernels/cpu/work.h"

namespace performer::kernels::PERFORMER_ISA {

inline std::int64_t state_index(const FavorProblem& p, std::int64_t n, std::int64_t state_head) {
  return n * p.state_heads + state_head;
}

/// result[n, head] = initial[n, head] + what add(worker, n, piece) puts into worker.state(), over
/// all items. Pieces of one item are merged in their order.
template <class Worker, class Length, class Add>
inline void sum_pieces(const FavorProblem& p, const Sizes& s, const Executor& executor,
                       const Items& items, Length length, const StateView& initial,
                       const StateView& result, Add add) {
  const int tasks = executor.threads;
  // A task has at most two pieces that are not whole.
  const auto slot = round_up(State::floats(s), kLine);
  auto* slots = static_cast<float*>(
      call_workspace(static_cast<std::size_t>(2 * tasks * slot) * sizeof(float)));
  const auto partial = [&](int task, const Piece& piece) {
    Scratch scratch(slots + (2 * task + (piece.leading ? 0 : 1)) * slot);
    return State(s, scratch);
  };
  const auto index = [&](const Piece& piece) {
    return state_index(p, items.sequence(piece.item), items.head(piece.item));
  };

  parallel(executor, tasks, [&](int task) {
    Worker worker(p, s, Scratch(thread_workspace(Worker::bytes(s))));
    for_each_piece(items, Worker::kTokens, task, tasks, length, [&](const Piece& piece) {
      if (piece.begin == 0) {
        worker.state().load(s, initial, index(piece));
      } else {
        worker.state().clear(s);
      }
      add(worker, items.sequence(piece.item), piece);
      if (piece.whole) {
        worker.state().store(s, result, index(piece));
      } else {
        partial(task, piece).copy(s, worker.state());
      }
    });
  });

  Scratch scratch(thread_workspace(Worker::bytes(s)));
  State total(s, scratch);
  for (int task = 0; task < tasks; ++task) {
    for_each_piece(items, Worker::kTokens, task, tasks, length, [&](const Piece& piece) {
      if (piece.whole) return;
      const State state = partial(task, piece);
      if (piece.begin == 0) {
        total.copy(s, state);
      } else {
        total.merge(s, state);
      }
      total.store(s, result, index(piece));
    });
  }
}

}  // namespace performer::kernels::PERFORMER_ISA
