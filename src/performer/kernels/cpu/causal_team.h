#pragma once

#include <new>

#include "performer/kernels/cpu/causal_forward.h"
#include "performer/kernels/cpu/sum_pieces.h"

// One causal sequence of one head on all threads, at no more arithmetic than on one. A round is
// kRoundChunks chunks for each thread:
//   1. each thread makes the key features of its chunks and sums them up, keeping features and the
//      sums before every chunk;
//   2. each attends with its chunks' queries: the state before a chunk is the state before the
//      round, plus the sums of the threads before, plus the thread's own sums so far.
// All features of a round are relative to the scales before it, so that sums need no rescaling and
// nothing depends on a later token. A chunk that outgrows the headroom ends the round's second part
// after itself; what follows in the round is done chunk by chunk.
namespace performer::kernels::PERFORMER_ISA {

inline constexpr std::int64_t kRoundChunks = 8;

class CausalTeam {
 public:
  CausalTeam(const FavorProblem& p, const Sizes& s, const Executor& executor)
      : problem_(p), sizes_(s), executor_(executor), memory_(allocate()), total_(s, memory_) {
    for (int task = 0; task < executor_.threads; ++task) new (member(task)) Member(p, s, memory_);
  }

  void run(std::int64_t n, std::int64_t state_head, const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const Span span = key_span(problem_, n);
    const auto index = state_index(problem_, n, state_head);
    total_.load(s, problem_.initial, index);
    parallel(executor_, executor_.threads,
             [&](int task) { member(task)->forward.pack_keys(state_head); });
    const auto round = executor_.threads * kRoundChunks * kChunk;
    for (std::int64_t begin = 0; begin < span.length; begin += round) {
      run_round(state_head, span, begin, least(begin + round, span.length), outputs);
    }
    total_.store(s, outputs.state, index);
  }

 private:
  /// A thread's share of a round.
  struct Member {
    Member(const FavorProblem& p, const Sizes& s, Scratch& memory)
        : forward(p, s, memory.take(CausalForward::bytes(s))), sum(s, memory), state(s, memory) {
      for (auto& chunk : chunks) {
        new (&chunk) Chunk{ChunkKeys(p, s, forward.key_projection(), memory), State(s, memory)};
      }
    }
    static std::int64_t floats(const Sizes& s) {
      return round_up(static_cast<std::int64_t>(CausalForward::bytes(s)) / 4 + kLine, kLine) +
             2 * State::floats(s) + kRoundChunks * (ChunkKeys::floats(s) + State::floats(s));
    }

    struct Chunk {
      ChunkKeys keys;
      State before;  // the thread's sums before the chunk
    };
    Chunk& chunk(std::int64_t c) { return *reinterpret_cast<Chunk*>(&chunks[c]); }

    CausalForward forward;
    State sum;    // of all the thread's chunks
    State state;  // before a chunk
    struct alignas(Chunk) Room {
      unsigned char bytes[sizeof(Chunk)];
    } chunks[kRoundChunks];
  };

  Scratch allocate() {
    const auto floats =
        State::floats(sizes_) + executor_.threads * (Member::floats(sizes_) + kLine);
    const auto members =
        round_up(static_cast<std::int64_t>(sizeof(Member)) * executor_.threads, 64);
    auto* memory =
        static_cast<char*>(call_workspace(static_cast<std::size_t>(members + floats * 4 + 4096)));
    members_ = reinterpret_cast<Member*>(memory);
    return Scratch(memory + members);
  }
  Member* member(int task) { return members_ + task; }

  static std::int64_t chunk_begin(std::int64_t begin, std::int64_t index) {
    return begin + index * kChunk;
  }

  void run_round(std::int64_t state_head, Span span, std::int64_t begin, std::int64_t end,
                 const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const auto chunks = (end - begin + kChunk - 1) / kChunk;
    // Chunks in order, as even as they go.
    const auto first_of = [&](int task) { return chunks * task / executor_.threads; };
    const auto first_live = set_reference(state_head, span, begin, end);
    const bool reached = reached_;
    parallel(executor_, executor_.threads, [&](int task) {
      Member& m = *member(task);
      clear_sums(m.sum);
      for (auto c = first_of(task); c < first_of(task + 1); ++c) {
        auto& chunk = m.chunk(c - first_of(task));
        const auto at = chunk_begin(begin, c);
        chunk.keys.take(state_head, span, at, least(kChunk, end - at));
        chunk.keys.make_features(total_);
        chunk.before.copy(s, m.sum);
        chunk.keys.add_plain(m.sum);
      }
    });
    auto last = chunks;  // chunks of the round that go in parallel
    for (int task = executor_.threads; task-- > 0;) {
      for (auto c = first_of(task); c < first_of(task + 1); ++c) {
        const auto& keys = member(task)->chunk(c - first_of(task)).keys;
        if (keys.bad() < keys.tokens()) last = least(last, c + 1);
      }
    }
    parallel(executor_, executor_.threads, [&](int task) {
      Member& m = *member(task);
      for (auto c = first_of(task); c < least(first_of(task + 1), last); ++c) {
        auto& chunk = m.chunk(c - first_of(task));
        const auto at = chunk_begin(begin, c);
        state_before(task, chunk.before, m.state);
        m.forward.attend_group(chunk.keys, m.state, reached || first_live < at, state_head, span,
                               at, outputs);
      }
    });
    finish_round(state_head, span, begin, end, chunks, last, first_live < end, outputs);
  }

  // The scales of the round: the state's, or those of the first key of the round where it is empty.
  // Returns the first key that is there, or `end`.
  std::int64_t set_reference(std::int64_t state_head, Span span, std::int64_t begin,
                             std::int64_t end) {
    const auto& s = sizes_;
    reached_ = total_.reached(s);
    const KeyTerms terms(problem_, state_head, span);
    auto first = begin;
    while (first < end && !terms.live(span.begin + first)) ++first;
    if (first == end) return end;
    if (problem_.map != Map::kExponential) {
      for (std::int64_t r = 0; r < s.m; ++r) total_.scale[r] = 0;
    } else if (!all_reached()) {
      Member& m = *member(0);
      ChunkKeys& keys = m.chunk(0).keys;
      keys.take(state_head, span, first, 1);
      keys.project(m.forward.room());
      keys.choose_reference(total_, m.forward.room(), total_.scale);
    }
    return first;
  }

  bool all_reached() const {
    for (std::int64_t r = 0; r < sizes_.m; ++r) {
      if (total_.scale[r] <= kReachedScale) return false;
    }
    return true;
  }

  void clear_sums(State& sum) const {
    sum.clear(sizes_);
    __builtin_memcpy(sum.scale, total_.scale, static_cast<std::size_t>(sizes_.mp) * sizeof(float));
  }

  // to = total + sums of the tasks before + own.
  void state_before(int task, const State& own, State& to) {
    to.copy(sizes_, total_);
    for (int other = 0; other < task; ++other) to.add_plain(sizes_, member(other)->sum);
    to.add_plain(sizes_, own);
  }

  void finish_round(std::int64_t state_head, Span span, std::int64_t begin, std::int64_t end,
                    std::int64_t chunks, std::int64_t last, bool any_key,
                    const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const auto task_of = [&](std::int64_t c) {
      int task = 0;
      while (chunks * (task + 1) / executor_.threads <= c) ++task;
      return task;
    };
    Member& own = *member(0);
    const auto bad = last - 1;  // where last < chunks, or the last chunk itself outgrew its scales
    Member& of_last = *member(task_of(bad));
    auto& chunk = of_last.chunk(bad - chunks * task_of(bad) / executor_.threads);
    if (chunk.keys.bad() < chunk.keys.tokens()) {
      state_before(task_of(bad), chunk.before, own.forward.state());
      lift_to_tops(own.forward.state(), chunks, bad);
      chunk.keys.add_to(own.forward.state(), own.forward.room());
      own.forward.run(state_head, span, chunk_begin(begin, last), end, outputs);
      total_.copy(s, own.forward.state());
      return;
    }
    for (int task = 0; task < executor_.threads; ++task) total_.add_plain(s, member(task)->sum);
    lift_to_tops(total_, chunks, chunks);
    if (!any_key && !reached_) total_.clear(s);
  }

  // The scales after the first `count` chunks of a round.
  void lift_to_tops(State& state, std::int64_t chunks, std::int64_t count) {
    for (int task = 0; task < executor_.threads; ++task) {
      const auto first = chunks * task / executor_.threads;
      const auto end = least(count, chunks * (task + 1) / executor_.threads);
      for (auto c = first; c < end; ++c) {
        const float* top = member(task)->chunk(c - first).keys.top();
        for (std::int64_t r = 0; r < sizes_.m; ++r) {
          if (top[r] > state.scale[r]) state.lift(sizes_, r, top[r]);
        }
      }
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  const Executor& executor_;
  Member* members_ = nullptr;
  Scratch memory_;
  State total_;  // before the round
  bool reached_ = false;
};

/// Whole items on one thread each while that keeps all busy; the items left over on all threads.
inline void causal_forward(const FavorProblem& p, const ForwardOutputs& outputs,
                           const Executor& executor) {
  const Sizes s(p);
  const Items items{p.state_heads, p.sequences};
  const auto threads = static_cast<std::int64_t>(executor.threads);
  const auto left_over = items.count() < 4 * threads ? items.count() % threads : 0;
  const auto whole = items.count() - (p.key_length > 2 * kChunk ? left_over : 0);
  const int tasks = static_cast<int>(least(threads, whole));
  if (whole > 0) {
    parallel(executor, tasks, [&](int task) {
      CausalForward forward(p, s, Scratch(thread_workspace(CausalForward::bytes(s))));
      for (auto item = whole * task / tasks; item < whole * (task + 1) / tasks; ++item) {
        const auto index = state_index(p, items.sequence(item), items.head(item));
        const Span span = key_span(p, items.sequence(item));
        forward.pack_keys(items.head(item));
        forward.state().load(s, p.initial, index);
        forward.run(items.head(item), span, 0, span.length, outputs);
        forward.state().store(s, outputs.state, index);
      }
    });
  }
  if (whole == items.count()) return;
  CausalTeam team(p, s, executor);
  for (auto item = whole; item < items.count(); ++item) {
    team.run(items.sequence(item), items.head(item), outputs);
  }
}

}  // namespace performer::kernels::PERFORMER_ISA
