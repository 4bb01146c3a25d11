#pragma once

#include "performer/kernels/cpu/near/slots.h"
#include "performer/kernels/cpu/near/stretch.h"
#include "performer/kernels/cpu/sum_pieces.h"

// How a pass over blocks is dealt out to threads: whole items (heads of sequences) while that keeps
// all busy; those that are left over, or have more blocks than a thread keeps the sums of, in
// stretches: their sums first, then the walks from the sums before and after them.
namespace performer::kernels::PERFORMER_ISA {

/// Which blocks are the far field of a block: those before it, after it, or both.
enum class Far : std::uint8_t { kBefore, kAfter, kBoth };

inline std::int64_t most_blocks(const FavorProblem& p) {
  std::int64_t blocks = 2;
  for (std::int64_t n = 0; n < p.sequences; ++n) {
    const auto length = key_span(p, n).length;
    blocks = most(blocks, 2 + (length + p.near - 1) / p.near);  // a state may have a part of one
  }
  return blocks;
}

/// Worker(p, s, scratch, args) has the pass over one block and what that adds to the sums:
///   static floats(p, s);  begin(at, head, stretch);  add(c, state, holds);  use(c, far);
///   finish(state), which gets the sums up to the last block but two.
/// A worker of two passes over whole sequences in both directions has the second as Next. What that
/// sums up, the first one's use leaves in the state that keep(state) hands it.
struct NoNext {
  template <class Args>
  NoNext(const FavorProblem&, const Sizes&, Scratch&, const Args&) {}
  static std::int64_t floats(const FavorProblem&, const Sizes&) { return 0; }
};

template <class Worker, class Args, class Next = NoNext>
class NearWalk {
 public:
  NearWalk(const FavorProblem& p, const Sizes& s, Far far, const Executor& executor)
      : problem_(p),
        sizes_(s),
        far_(far),
        executor_(executor),
        items_{p.state_heads, p.sequences},
        longest_(far == Far::kBoth ? least(FarSums::longest(s), most_blocks(p)) : 0) {
    const auto threads = static_cast<std::int64_t>(executor.threads);
    spread_from_ = items_.count() - (items_.count() < 4 * threads ? items_.count() % threads : 0);
  }

  /// Of `room`: the sums before and after each stretch.
  std::int64_t room_floats() const {
    std::int64_t stretches = 0;
    for (std::int64_t item = 0; item < items_.count(); ++item) {
      stretches = most(stretches, count_stretches(item));
    }
    return 2 * stretches * FarSums::slot(sizes_);
  }

  /// skips_whole: another walk has been over the items that are not cut.
  void run(const StateView& initial, const Args& args, float* room, bool skips_whole = false) {
    initial_ = initial, args_ = &args, room_ = room;
    std::int64_t whole = 0;
    for (std::int64_t item = 0; item < items_.count(); ++item) {
      whole += !skips_whole && count_stretches(item) == 1;
    }
    const auto tasks = least<std::int64_t>(executor_.threads, whole);
    if (whole > 0) {
      parallel(executor_, static_cast<int>(tasks),
               [&](int task) { run_whole(whole * task / tasks, whole * (task + 1) / tasks); });
    }
    for (std::int64_t item = 0; item < items_.count(); ++item) {
      if (count_stretches(item) > 1) run_cut(item);
    }
  }

 private:
  /// A thread's worker and sums.
  struct Thread {
    Thread(const NearWalk& walk)
        : scratch(thread_workspace(static_cast<std::size_t>(walk.thread_floats()) * 4)),
          worker(walk.problem_, walk.sizes_, scratch, *walk.args_),
          next(walk.problem_, walk.sizes_, scratch, *walk.args_),
          before(walk.sizes_, scratch),
          after(walk.sizes_, scratch),
          sums(walk.sizes_, scratch.floats(walk.sum_floats())) {}
    Scratch scratch;
    Worker worker;
    Next next;
    State before, after;
    FarSums sums;
  };

  std::int64_t sum_floats() const {
    return far_ == Far::kBoth ? FarSums::floats(sizes_, longest_) : 0;
  }
  std::int64_t thread_floats() const {
    return Worker::floats(problem_, sizes_) + Next::floats(problem_, sizes_) +
           2 * State::floats(sizes_) + sum_floats() + 2 * kLine;
  }

  std::int64_t count_stretches(std::int64_t item) const {
    const auto blocks = Slots(problem_, items_.sequence(item)).blocks() - 1;
    const auto spread =
        item < spread_from_ ? std::int64_t{1} : least<std::int64_t>(executor_.threads, blocks / 4);
    const auto kept = far_ == Far::kBoth ? (blocks + longest_ - 1) / longest_ : std::int64_t{1};
    return most(most(spread, kept), std::int64_t{1});
  }

  void run_whole(std::int64_t first, std::int64_t last) {
    Thread thread(*this);
    std::int64_t number = 0;
    for (std::int64_t item = 0; item < items_.count() && number < last; ++item) {
      if (count_stretches(item) > 1 || number++ < first) continue;
      const Slots at(problem_, items_.sequence(item));
      const Stretch all{1, at.blocks(), at.blocks()};
      thread.worker.begin(at, items_.head(item), all);
      thread.before.load(sizes_, initial_, index(item));
      thread.after.clear(sizes_);
      if constexpr (kTwice) {
        if (far_ == Far::kBoth) {
          walk_twice(thread, at, items_.head(item), all);
          continue;
        }
      }
      walk(thread, all);
    }
  }

  static constexpr bool kTwice = !__is_same(Next, NoNext);

  void walk_twice(Thread& thread, const Slots& at, std::int64_t head, const Stretch& all) {
    thread.sums.walk(
        all, thread.before, thread.after,
        [&](std::int64_t c, State& to, Holds holds) { thread.worker.add(c, to, holds); },
        [&](std::int64_t c, const State& far) {
          thread.worker.keep(thread.sums.room_for(c));
          thread.worker.use(c, far);
        });
    thread.next.begin(at, head, all);
    thread.before.clear(sizes_), thread.after.clear(sizes_);
    thread.sums.walk_rooms(thread.before, thread.after,
                           [&](std::int64_t c, const State& far) { thread.next.use(c, far); });
  }

  void walk(Thread& thread, const Stretch& stretch) {
    const auto add = [&](std::int64_t c, State& to, Holds holds) {
      thread.worker.add(c, to, holds);
    };
    if (far_ == Far::kBoth) {
      thread.sums.walk(stretch, thread.before, thread.after, add,
                       [&](std::int64_t c, const State& far) { thread.worker.use(c, far); });
    } else {
      State& state = far_ == Far::kBefore ? thread.before : thread.after;
      const auto use = [&](std::int64_t c, const State& far) { thread.worker.use(c, far); };
      far_ == Far::kBefore ? walk_up(stretch, state, add, use)
                           : walk_down(stretch, state, add, use);
    }
    if (stretch.end == stretch.blocks) thread.worker.finish(thread.before);
  }

  // Of one item, in `room`.
  State before(std::int64_t stretch) const { return state(2 * stretch); }
  State after(std::int64_t stretch) const { return state(2 * stretch + 1); }
  State state(std::int64_t place) const {
    Scratch scratch(room_ + place * FarSums::slot(sizes_));
    return State(sizes_, scratch);
  }
  std::int64_t index(std::int64_t item) const {
    return state_index(problem_, items_.sequence(item), items_.head(item));
  }

  void run_cut(std::int64_t item) {
    const Slots at(problem_, items_.sequence(item));
    const auto count = count_stretches(item), blocks = at.blocks();
    const auto stretch = [&](std::int64_t k) {
      return Stretch{1 + (blocks - 1) * k / count, 1 + (blocks - 1) * (k + 1) / count, blocks};
    };
    parallel(executor_, static_cast<int>(count), [&](int k) {
      Thread thread(*this);
      thread.worker.begin(at, items_.head(item), stretch(k));
      sum_parts(thread, stretch(k), before(k), after(k));
    });
    chain_sums(count, index(item));
    parallel(executor_, static_cast<int>(count), [&](int k) {
      Thread thread(*this);
      thread.worker.begin(at, items_.head(item), stretch(k));
      thread.before.copy(sizes_, before(k));
      thread.after.copy(sizes_, after(k));
      walk(thread, stretch(k));
    });
  }

  // What the next stretch has before it beside what this one has, and the previous one after it.
  void sum_parts(Thread& thread, const Stretch& own, State up, State down) {
    const auto add = [&](std::int64_t begin, std::int64_t end, State& to) {
      for (auto c = begin; c < least(end, own.blocks); ++c) thread.worker.add(c, to, Holds::kSums);
    };
    up.clear(sizes_);
    add(own.begin + 1, own.end - 1, up);
    down.copy(sizes_, up);
    if (far_ != Far::kAfter) add(own.begin - 1, own.begin + 1, up);
    if (far_ != Far::kBefore) add(own.end - 1, own.end + 1, down);
  }

  // From what each stretch adds to the sums before and after each.
  void chain_sums(std::int64_t count, std::int64_t index) {
    Scratch scratch(thread_workspace(static_cast<std::size_t>(2 * FarSums::slot(sizes_)) * 4));
    State sum(sizes_, scratch), part(sizes_, scratch);
    const auto pass = [&](State at) {
      part.copy(sizes_, at), at.copy(sizes_, sum);
      sum_states(sizes_, sum, part, sum);
    };
    sum.load(sizes_, initial_, index);
    for (std::int64_t k = 0; k < count; ++k) pass(before(k));
    sum.clear(sizes_);
    for (std::int64_t k = count; k-- > 0;) pass(after(k));
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  Far far_;
  const Executor& executor_;
  Items items_;
  std::int64_t longest_, spread_from_ = 0;
  StateView initial_;
  const Args* args_ = nullptr;
  float* room_ = nullptr;
};

}  // namespace performer::kernels::PERFORMER_ISA
