#pragma once

#include "performer/kernels/cpu/layout.h"

// How tokens are dealt out to threads: all items (heads of sequences) in a row, cut into equal
// numbers of tiles. A thread gets whole items and at most two pieces of items, so that one long
// sequence of one head keeps every thread busy. A function of shapes and the thread count alone.
namespace performer::kernels::PERFORMER_ISA {

struct Piece {
  std::int64_t item, begin, end;  // tokens
  bool whole;
  bool leading;  // the first piece of its task
};

/// Items are ordered head by head, so that a head's projection is packed once.
struct Items {
  std::int64_t heads, sequences;

  std::int64_t count() const { return heads * sequences; }
  std::int64_t head(std::int64_t item) const { return item / sequences; }
  std::int64_t sequence(std::int64_t item) const { return item % sequences; }
};

/// Calls body for the pieces of `task` of `tasks`; length(sequence) in tokens.
template <class Length, class Body>
inline void for_each_piece(const Items& items, std::int64_t tile, int task, int tasks,
                           Length length, Body body) {
  // An item without tokens still counts: its state must be written.
  const auto tiles = [&](std::int64_t item) {
    return most<std::int64_t>(1, (length(items.sequence(item)) + tile - 1) / tile);
  };
  std::int64_t total = 0;
  for (std::int64_t n = 0; n < items.sequences; ++n) total += tiles(n);
  total *= items.heads;
  const auto first = total * task / tasks;
  const auto last = total * (task + 1) / tasks;
  std::int64_t position = 0;
  bool leading = true;
  for (std::int64_t item = 0; item < items.count() && position < last; ++item) {
    const auto count = tiles(item);
    const auto begin = most(first, position) - position;
    const auto end = least(last, position + count) - position;
    position += count;
    if (begin >= end) continue;
    const auto tokens = length(items.sequence(item));
    body(Piece{item, least(begin * tile, tokens), least(end * tile, tokens),
               begin == 0 && end == count, leading});
    leading = false;
  }
}

/// Runs body(task) on the executor's threads.
template <class Body>
inline void parallel(const Executor& executor, int tasks, Body body) {
  executor.run(
      tasks, [](void* context, int task) { (*static_cast<Body*>(context))(task); }, &body);
}

}  // namespace performer::kernels::PERFORMER_ISA
