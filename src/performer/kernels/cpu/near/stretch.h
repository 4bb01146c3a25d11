#pragma once

#include "performer/kernels/cpu/near/sums.h"

// The far field of a block, walking over a stretch of blocks: the sum of those before it and of
// those after it, but for its neighbours. Nothing is ever subtracted from a sum. Sums of blocks are
// made by add(block, state, holds), which adds one to a state.
namespace performer::kernels::PERFORMER_ISA {

/// Blocks [begin, end) of a sequence of `blocks`.
struct Stretch {
  std::int64_t begin, end, blocks;
  std::int64_t length() const { return end - begin; }
};

/// to = a + b
inline void sum_states(const Sizes& s, const State& a, const State& b, State& to) {
  for (std::int64_t r = 0; r < s.mp; ++r) {
    const float scale = most(a.scale[r], b.scale[r]);
    const Vec from_a = splat(exp2_integer(a.scale[r] - scale));
    const Vec from_b = splat(exp2_integer(b.scale[r] - scale));
    to.scale[r] = scale;
    to.normalizer[r] = a.normalizer[r] * from_a[0] + b.normalizer[r] * from_b[0];
    const auto end = (r + 1) * s.dvp;
    for (auto i = r * s.dvp; i < end; i += kLanes) {
      store(to.sum + i, load(a.sum + i) * from_a + load(b.sum + i) * from_b);
    }
  }
}

/// before += block, far = before + after, reading each once.
inline void advance(const Sizes& s, State& before, const State& block, const State& after,
                    State& far) {
  for (std::int64_t r = 0; r < s.mp; ++r) {
    const float up = most(before.scale[r], block.scale[r]), scale = most(up, after.scale[r]);
    const float own = exp2_integer(before.scale[r] - up), more = exp2_integer(block.scale[r] - up);
    const float up_factor = exp2_integer(up - scale);
    const float after_factor = exp2_integer(after.scale[r] - scale);
    before.scale[r] = up, far.scale[r] = scale;
    before.normalizer[r] = before.normalizer[r] * own + block.normalizer[r] * more;
    far.normalizer[r] = before.normalizer[r] * up_factor + after.normalizer[r] * after_factor;
    for (auto i = r * s.dvp; i < (r + 1) * s.dvp; i += kLanes) {
      const Vec sum = load(before.sum + i) * splat(own) + load(block.sum + i) * splat(more);
      store(before.sum + i, sum);
      store(far.sum + i, sum * splat(up_factor) + load(after.sum + i) * splat(after_factor));
    }
  }
}

/// Calls use(c) for the blocks of a stretch in order, `state` being the sum of blocks up to c - 2;
/// at first of those up to begin - 2.
template <class Add, class Use>
inline void walk_up(const Stretch& stretch, State& state, Add add, Use use) {
  for (auto c = stretch.begin; c < stretch.end; ++c) {
    if (c - 2 >= stretch.begin - 1) add(c - 2, state, Holds::kSums);
    use(c, state);
  }
}

/// The same from the last to the first, of blocks from c + 2 on.
template <class Add, class Use>
inline void walk_down(const Stretch& stretch, State& state, Add add, Use use) {
  for (auto c = stretch.end; c-- > stretch.begin;) {
    if (c + 2 <= stretch.end && c + 2 < stretch.blocks) add(c + 2, state, Holds::kSums);
    use(c, state);
  }
}

/// Both: sums of blocks are made once, last to first, and kept; so is the sum behind every group of
/// blocks. Those within a group follow when the walk up reaches it, and stay in the cache.
class FarSums {
 public:
  /// Sums that a thread keeps: 1,024 blocks of 256 features and values of width 64.
  static constexpr std::int64_t kMostBytes = std::int64_t{80} << 20;
  static constexpr std::int64_t kGroup = 6;

  FarSums(const Sizes& s, float* memory) : sizes_(s), memory_(memory) {}

  static std::int64_t slot(const Sizes& s) { return round_up(State::floats(s), kLine); }
  /// Numbers that a stretch of so many blocks takes.
  static std::int64_t floats(const Sizes& s, std::int64_t blocks) {
    return (blocks + 4 + groups(blocks) + kGroup + 1) * slot(s);
  }
  static std::int64_t longest(const Sizes& s) {
    const auto states = kMostBytes / 4 / slot(s) - kGroup - 6;
    return most<std::int64_t>(states * kGroup / (kGroup + 1), kGroup);
  }

  /// before, after: the sums up to begin - 2, and from end + 1 on. `before` becomes that up to
  /// end - 3; far(c) is handed to use.
  template <class Add, class Use>
  void walk(const Stretch& stretch, State& before, State& after, Add add, Use use) {
    stretch_ = stretch, shift_ = 2;
    walk_blocks(before, after, add, use);
  }

  /// Room for another sum of block c, from when it is used to the next walk: that of the sum of
  /// block c - 2, which has been added up.
  State room_for(std::int64_t c) const { return state(c - stretch_.begin + 1); }

  /// Walks over the sums that are in these rooms. The stretch is a whole sequence.
  template <class Use>
  void walk_rooms(State& before, State& after, Use use) {
    shift_ = 0;
    room_for(0).clear(sizes_);
    walk_blocks(
        before, after, [](std::int64_t, const State&, Holds) {}, use);
  }

 private:
  template <class Add, class Use>
  void walk_blocks(State& before, State& after, Add add, Use use) {
    const Stretch stretch = stretch_;
    const auto& s = sizes_;
    make_blocks(after, add);
    State far = state(far_place());
    for (auto c = stretch.begin; c < stretch.end; ++c) {
      if ((c - stretch.begin) % kGroup == 0) open_group(c);
      if (c - 2 >= stretch.begin - 1) {
        advance(s, before, block(c - 2), after_block(c), far);
      } else {
        sum_states(s, before, after_block(c), far);
      }
      use(c, far);
    }
  }

  static std::int64_t groups(std::int64_t blocks) { return (blocks + kGroup - 1) / kGroup; }

  // In memory: two rooms, the blocks begin - 1 ... end, what lies behind each group, the group at
  // hand, far.
  State state(std::int64_t place) const {
    Scratch scratch(memory_ + place * slot(sizes_));
    return State(sizes_, scratch);
  }
  State block(std::int64_t c) const { return state(c - stretch_.begin + 1 + shift_); }
  State behind(std::int64_t group) const { return state(stretch_.length() + 4 + group); }
  std::int64_t group_place() const { return stretch_.length() + 4 + groups(stretch_.length()); }
  std::int64_t far_place() const { return group_place() + kGroup; }
  std::int64_t last_of_group(std::int64_t c) const {
    const auto group = (c - stretch_.begin) / kGroup;
    return least(stretch_.begin + (group + 1) * kGroup, stretch_.end) - 1;
  }
  /// What comes after the neighbours of block c, in the group at hand.
  State after_block(std::int64_t c) const {
    if (c == last_of_group(c)) return behind((c - stretch_.begin) / kGroup);
    return state(group_place() + (c - stretch_.begin) % kGroup);
  }
  bool is_block(std::int64_t c) const { return c <= stretch_.end && c < stretch_.blocks; }

  void sum_into(State& to, const State& more) const { sum_states(sizes_, to, more, to); }

  template <class Add>
  void make_blocks(State& after, Add add) {
    for (auto c = stretch_.end + 1; c >= stretch_.begin - 1; --c) {
      if (is_block(c)) {
        State own = block(c);
        add(c, own, Holds::kNothing);
      }
      const auto use = c - 2;  // the block that sees those from c on as far
      if (use < stretch_.begin || use >= stretch_.end) continue;
      if (is_block(c)) sum_into(after, block(c));
      if (use == last_of_group(use)) behind((use - stretch_.begin) / kGroup).copy(sizes_, after);
    }
  }

  void open_group(std::int64_t first) const {
    for (auto c = last_of_group(first); c-- > first;) {
      State own = after_block(c);
      is_block(c + 2) ? sum_states(sizes_, after_block(c + 1), block(c + 2), own)
                      : own.copy(sizes_, after_block(c + 1));
    }
  }

  const Sizes& sizes_;
  float* memory_;
  Stretch stretch_{};
  std::int64_t shift_ = 0;
};

}  // namespace performer::kernels::PERFORMER_ISA
