#pragma once

#include "performer/kernels/cpu/features.h"
#include "performer/kernels/cpu/gemm.h"
#include "performer/kernels/cpu/near/slots.h"

// What a block of keys adds to the sums of the far field.
namespace performer::kernels::PERFORMER_ISA {

/// What a state holds when something is added to it: sums, or nothing that counts. A block's sum of
/// its own is then written without having been cleared.
enum class Holds : std::uint8_t { kSums, kNothing };

/// The scales that features l [tokens, ldf], in units of log2, need. One of the tokens at least is
/// there.
inline void set_scales(const Sizes& s, const float* l, std::int64_t tokens, State& state,
                       Holds holds) {
  if (holds == Holds::kSums) return lift_scales(s, l, tokens, state);
  zero(state.normalizer, s.mp);
  for (std::int64_t n = 0; n < s.mp; n += kLanes) {
    Vec top = splat(-__builtin_inff());
    for (std::int64_t t = 0; t < tokens; ++t) top = max(load(l + t * s.ldf + n), top);
    float tops[kLanes];
    store(tops, top);
    for (int lane = 0; lane < kLanes; ++lane) state.scale[n + lane] = round_up_log2(tops[lane]);
  }
  for (std::int64_t r = s.m; r < s.mp; ++r) state.scale[r] = kEmptyScale;
}

/// Adds features [tokens, ldf] times values [tokens, dvp].
inline void add_products(const Sizes& s, const float* features, std::int64_t tokens,
                         const float* values, State& state, Holds holds) {
  const Left left{features, 1, s.ldf};
  const Right right = Right::rows(values, s.dvp);
  if (holds == Holds::kSums) {
    gemm<Plus::kSelf>(s.mp, s.dvp, tokens, left, right, state.sum, s.dvp);
  } else {
    gemm<Plus::kNothing>(s.mp, s.dvp, tokens, left, right, state.sum, s.dvp);
  }
}

class KeySums {
 public:
  KeySums(const FavorProblem& p, const Sizes& s, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        projection_(p, s, scratch),
        features_(scratch.floats(kTile * s.ldf)),
        x_(scratch.floats(kTile * s.dp)),
        v_(scratch.floats(kTile * s.dvp)),
        token_(scratch.floats(kTile)) {}

  static std::int64_t floats(const Sizes& s) {
    return Projection::floats(s) + kTile * (s.ldf + s.dp + s.dvp + 1) + 4 * kLine;
  }

  void add(const Slots& at, std::int64_t state_head, std::int64_t block, State& to, Holds holds) {
    const auto& s = sizes_;
    if (s.m == 0) return;
    projection_.pack_keys(state_head);
    const auto end = (block + 1) * at.b;
    Keys keys{x_, v_, token_, false, {}};
    for (auto begin = block * at.b; begin < end; begin += kTile) {
      const auto count = least(kTile, end - begin);
      load_slots(problem_, s, at, state_head, begin, count, keys, nullptr);
      if (!any_live(keys, count)) continue;
      projection_.token_major(x_, count, token_, features_);
      set_scales(s, features_, count, to, holds);
      key_exponentials(s, features_, count, to.scale, to.normalizer);
      add_products(s, features_, count, v_, to, holds);
      holds = Holds::kSums;
    }
    if (holds == Holds::kNothing) to.clear(s);
  }

 private:
  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection projection_;
  float *features_, *x_, *v_, *token_;
};

}  // namespace performer::kernels::PERFORMER_ISA
