#pragma once

#include "performer/kernels/cpu/features.h"
#include "performer/kernels/cpu/gemm.h"
#include "performer/kernels/cpu/near/slots.h"

// What a block of keys adds to the sums of the far field.
namespace performer::kernels::PERFORMER_ISA {

/// Adds features l [tokens, ldf], in units of log2 (they become features), and values to a state,
/// whose scales rise as needed. One of the tokens at least is there.
inline void add_features(const Sizes& s, float* l, std::int64_t tokens, const float* v,
                         State& state) {
  lift_scales(s, l, tokens, state);
  key_exponentials(s, l, tokens, state.scale, state.normalizer);
  gemm<Plus::kSelf>(s.mp, s.dvp, tokens, {l, 1, s.ldf}, Right::rows(v, s.dvp), state.sum, s.dvp);
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

  void add(const Slots& at, std::int64_t state_head, std::int64_t block, State& to) {
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
      add_features(s, features_, count, v_, to);
    }
  }

 private:
  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection projection_;
  float *features_, *x_, *v_, *token_;
};

}  // namespace performer::kernels::PERFORMER_ISA
