#pragma once

#include "performer/kernels/cpu/causal_backward.h"
#include "performer/kernels/cpu/sum_pieces.h"

// How the causal backward pass is dealt out to threads.
namespace performer::kernels::PERFORMER_ISA {

/// Whole items on one thread each while that keeps all busy; the items left over in segments, one a
/// thread: their sums first (S forwards, dS backwards), then the walks from the sums before them.
class CausalBackwardPass {
 public:
  CausalBackwardPass(const FavorProblem& p, const Sizes& s, const BackwardInputs& in,
                     const BackwardOutputs& out, const Executor& executor)
      : problem_(p),
        sizes_(s),
        in_(in),
        out_(out),
        executor_(executor),
        in_place_(ChunkRows::fit_key_rows(p, out.k)),
        bytes_(round_up(
            static_cast<std::int64_t>(most(CausalBackward::bytes(s), Forward::bytes(s))), 64)),
        row_floats_(in_place_ ? 0 : 2 * (p.heads / p.state_heads) * p.query_length) {}

  bool run() {
    const Items items{problem_.state_heads, problem_.sequences};
    const auto threads = static_cast<std::int64_t>(executor_.threads);
    const auto left_over = items.count() < 4 * threads ? items.count() % threads : 0;
    // Segments need the rows of the whole sequence in one place.
    const bool cut = in_place_ && problem_.key_length > 2 * kChunk;
    const auto whole = items.count() - (cut ? left_over : 0);
    const int tasks = static_cast<int>(least(threads, whole));
    if (whole > 0) {
      parallel(executor_, tasks, [&](int task) {
        CausalBackward backward = worker();
        for (auto item = whole * task / tasks; item < whole * (task + 1) / tasks; ++item) {
          if (!failed()) whole_item(backward, items.sequence(item), items.head(item));
        }
      });
    }
    for (auto item = whole; item < items.count() && !failed(); ++item) {
      cut_item(items.sequence(item), items.head(item));
    }
    return !failed();
  }

 private:
  bool failed() const { return __atomic_load_n(&gave_up_, __ATOMIC_RELAXED) != 0; }
  void check(bool went_well) {
    if (!went_well) __atomic_store_n(&gave_up_, 1, __ATOMIC_RELAXED);
  }

  CausalBackward worker() {
    auto* memory = static_cast<char*>(thread_workspace(
        static_cast<std::size_t>(bytes_ + row_floats_ * static_cast<std::int64_t>(sizeof(float)))));
    return CausalBackward(problem_, sizes_, Scratch(memory),
                          in_place_ ? nullptr : reinterpret_cast<float*>(memory + bytes_));
  }

  void whole_item(CausalBackward& backward, std::int64_t n, std::int64_t head) {
    const Span span = key_span(problem_, n);
    const auto index = state_index(problem_, n, head);
    backward.pack_keys(head);
    backward.state().load(sizes_, problem_.initial, index);
    if (!backward.walk_queries({head, span, 0, 0}, span.length, in_, out_)) return check(false);
    backward.load_final_gradient(in_, index);
    if (!backward.walk_keys({head, span, 0, 0}, span.length, in_, out_)) return check(false);
    store_initial_gradient(problem_, sizes_, backward.state(), in_, out_, index);
  }

  // One item among all threads: a segment each, and the states before them, or the dS after them.
  struct Cut {
    std::int64_t head;
    Span span;
    int tasks;
    float* slots;
    std::int64_t slot;  // numbers of one state

    std::int64_t begin(int task) const {
      const auto chunks = (span.length + kChunk - 1) / kChunk;
      return least(chunks * task / tasks * kChunk, span.length);
    }
    ChunkAt first_chunk(int task) const { return {head, span, begin(task), 0}; }
    std::int64_t end(int task) const { return begin(task + 1); }
    State state(const Sizes& s, int task) const {
      Scratch scratch(slots + task * slot);
      return State(s, scratch);
    }
  };

  void cut_item(std::int64_t n, std::int64_t head) {
    const auto& s = sizes_;
    const auto index = state_index(problem_, n, head);
    const int tasks = executor_.threads;
    const auto slot = round_up(State::floats(s), kLine);
    auto* slots =
        static_cast<float*>(call_workspace(static_cast<std::size_t>(tasks * slot) * sizeof(float)));
    const Cut cut{head, key_span(problem_, n), tasks, slots, slot};
    sum_states(cut, index);
    parallel(executor_, tasks, [&](int task) {
      CausalBackward backward = worker();
      backward.pack_keys(head);
      backward.state().copy(s, cut.state(s, task));
      check(backward.walk_queries(cut.first_chunk(task), cut.end(task), in_, out_));
    });
    if (failed()) return;
    sum_gradients(cut, index);
    parallel(executor_, tasks, [&](int task) {
      CausalBackward backward = worker();
      backward.pack_keys(head);
      backward.state().copy(s, cut.state(s, task));
      check(backward.walk_keys(cut.first_chunk(task), cut.end(task), in_, out_));
      if (task == 0 && !failed()) {
        store_initial_gradient(problem_, s, backward.state(), in_, out_, index);
      }
    });
  }

  // S before each segment.
  void sum_states(const Cut& cut, std::int64_t index) {
    const auto& s = sizes_;
    parallel(executor_, cut.tasks, [&](int task) {
      if (task + 1 == cut.tasks) return;  // nothing comes after the last
      Forward forward(problem_, s, Scratch(thread_workspace(static_cast<std::size_t>(bytes_))));
      forward.state().clear(s);
      forward.add_keys(cut.head, cut.span, cut.begin(task), cut.end(task));
      cut.state(s, task + 1).copy(s, forward.state());
    });
    cut.state(s, 0).load(s, problem_.initial, index);
    for (int task = 1; task < cut.tasks; ++task) {
      cut.state(s, task).merge(s, cut.state(s, task - 1));
    }
  }

  // dS after each segment.
  void sum_gradients(const Cut& cut, std::int64_t index) {
    const auto& s = sizes_;
    parallel(executor_, cut.tasks, [&](int task) {
      if (task == 0) return;
      CausalBackward backward = worker();
      backward.clear_gradient();
      backward.add_rows(cut.first_chunk(task), cut.end(task), in_, out_);
      cut.state(s, task - 1).copy(s, backward.state());
    });
    {
      CausalBackward backward = worker();
      backward.load_final_gradient(in_, index);
      cut.state(s, cut.tasks - 1).copy(s, backward.state());
    }
    for (int task = cut.tasks - 1; task-- > 0;) {
      cut.state(s, task).merge(s, cut.state(s, task + 1));
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  const BackwardInputs& in_;
  const BackwardOutputs& out_;
  const Executor& executor_;
  bool in_place_;
  std::int64_t bytes_, row_floats_;
  int gave_up_ = 0;
};

inline bool causal_backward(const FavorProblem& p, const BackwardInputs& in,
                            const BackwardOutputs& out, const Executor& executor) {
  const Sizes s(p);
  return CausalBackwardPass(p, s, in, out, executor).run();
}

}  // namespace performer::kernels::PERFORMER_ISA
