#pragma once

#include "performer/kernels/cpu/near/slots.h"

// The near field that the final state carries.
namespace performer::kernels::PERFORMER_ISA {

/// The keys that the next token will see exactly, of one sequence and state head: key heads are
/// written by the first of their state heads.
class FinalNear {
 public:
  FinalNear(const FavorProblem& p, const Sizes& s, const Slots& at, std::int64_t state_head)
      : problem_(p),
        sizes_(s),
        at_(at),
        state_head_(state_head),
        head_(head_of(state_head, p.state_heads, p.key_heads)) {}

  void store(const NearStateView& to) const {
    const auto places = 2 * at_.b, position = at_.before + at_.tokens;
    const bool writes_keys = state_head_ % (problem_.state_heads / problem_.key_heads) == 0;
    for (std::int64_t place = 0; place < places; ++place) {
      const auto slot = at_.joined() * at_.b + place;
      const bool stays = place < at_.b + position % at_.b && (place >= at_.b || position >= at_.b);
      to.bias[(at_.sequence * problem_.state_heads + state_head_) * places + place] =
          stays ? bias(slot, state_head_) : -__builtin_inff();
      if (!writes_keys) continue;
      const auto row = (at_.sequence * problem_.key_heads + head_) * places + place;
      const bool real = stays && is_real(slot);
      copy(problem_.k, problem_.near_initial.keys, real, slot, sizes_.d, to.keys + row * sizes_.d);
      copy(problem_.v, problem_.near_initial.values, real, slot, sizes_.dv,
           to.values + row * sizes_.dv);
    }
    if (state_head_ == 0) to.position[at_.sequence] = position;
  }

 private:
  // key_bias of a key, -inf where there is none.
  float bias(std::int64_t slot, std::int64_t state_head) const {
    if (slot < at_.first) {
      const auto first = (at_.sequence * problem_.state_heads + state_head) * 2 * at_.b;
      return problem_.near_initial.bias[first + slot];
    }
    const KeyTerms terms(problem_, state_head, at_.span);
    const auto token = at_.span.begin + at_.token(slot);
    return terms.live(token) ? terms.bias_or_zero(token) : -__builtin_inff();
  }

  bool is_real(std::int64_t slot) const {
    for (std::int64_t h = 0; h < problem_.state_heads; ++h) {
      if (bias(slot, h) != -__builtin_inff()) return true;
    }
    return false;
  }

  void copy(const TokenView& tokens, const float* state, bool real, std::int64_t slot,
            std::int64_t width, float* to) const {
    for (std::int64_t i = 0; i < width; ++i) to[i] = 0;
    if (!real) return;
    if (slot < at_.first) {
      const auto row = (at_.sequence * problem_.key_heads + head_) * 2 * at_.b + slot;
      for (std::int64_t i = 0; i < width; ++i) to[i] = state[row * width + i];
    } else {
      load_tokens(tokens, problem_.dtype, at_.span.batch, head_, at_.span.begin + at_.token(slot),
                  1, width, width, to);
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  const Slots& at_;
  std::int64_t state_head_, head_;
};

}  // namespace performer::kernels::PERFORMER_ISA
