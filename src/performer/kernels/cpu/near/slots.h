#pragma once

#include "performer/kernels/cpu/tokens.h"

// The near field is cut into blocks from the first real token of each sequence, and a state may end
// anywhere in a block. So tokens have slots, in which blocks lie at multiples of b:
//   [ the state's block before | the state's part of a block, and the tokens ].
namespace performer::kernels::PERFORMER_ISA {

/// The slots of sequence n. Block 0 lies before all tokens.
struct Slots {
  Slots(const FavorProblem& p, std::int64_t n)
      : sequence(n),
        span(key_span(p, n)),
        b(p.near),
        before(p.near_initial.position == nullptr ? 0 : p.near_initial.position[n]),
        origin(before > 0 ? 0 : first_real(p, span)),
        tokens(span.length - origin),
        first(b + before % b) {}

  std::int64_t sequence;
  Span span;
  std::int64_t b;
  std::int64_t before;  // tokens before the call
  std::int64_t origin;  // the first token that has a slot; those before it see nothing
  std::int64_t tokens;  // with slots
  std::int64_t first;   // slot of token `origin`

  std::int64_t blocks() const { return most((first + tokens + b - 1) / b, std::int64_t{2}); }
  /// Blocks that are in the final state's sums; those after them are in its near field.
  std::int64_t joined() const { return (before % b + tokens) / b; }
  /// Whether the initial state's near field has a key there.
  bool held(std::int64_t slot) const { return slot < first && (slot >= b || before >= b); }
  std::int64_t token(std::int64_t slot) const { return slot - first + origin; }

  /// Tokens of slots [begin, end), as [begin, end) of the sequence.
  struct Range {
    std::int64_t begin, end;
  };
  Range range(std::int64_t begin, std::int64_t end) const {
    const auto from = token(most(begin, first));
    return {from, most(from, token(least(end, first + tokens)))};
  }

 private:
  static std::int64_t first_real(const FavorProblem& p, Span span) {
    const auto heads = p.key_bias == nullptr ? 1 : p.key_bias_heads;
    for (std::int64_t t = 0; t < span.length; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto state_head = h * (p.state_heads / heads);
        if (KeyTerms(p, state_head, span).live(span.begin + t)) return t;
      }
    }
    return span.length;
  }
};

/// Keys of slots [begin, begin + count), at most kTile, as load_keys loads those of tokens. local:
/// [count] what each adds to the log2 of its exact weights, -inf where there is no key.
inline void load_slots(const FavorProblem& p, const Sizes& s, const Slots& at,
                       std::int64_t state_head, std::int64_t begin, std::int64_t count, Keys& keys,
                       float* local) {
  const auto head = head_of(state_head, p.state_heads, p.key_heads);
  const auto range = at.range(begin, begin + count);
  const auto skipped = least(count, most(std::int64_t{0}, at.first - begin));
  const auto tokens = range.end - range.begin, first = at.span.begin + range.begin;
  load_tokens(p.k, p.dtype, at.span.batch, head, first, tokens, s.d, s.dp, keys.x + skipped * s.dp);
  load_tokens(p.v, p.dtype, at.span.batch, head, first, tokens, s.dv, s.dvp,
              keys.v + skipped * s.dvp);
  const KeyTerms terms(p, state_head, at.span);
  const NearStateView& state = p.near_initial;
  keys.masked = false;
  for (std::int64_t t = 0; t < count; ++t) {
    float *x = keys.x + t * s.dp, *v = keys.v + t * s.dvp;
    float own = 0;
    keys.live[t] = false;
    if (t < skipped && at.held(begin + t)) {
      const auto places = 2 * at.b, place = begin + t;
      own = state.bias[(at.sequence * p.state_heads + state_head) * places + place];
      keys.live[t] = own != -__builtin_inff();
      const auto row = (at.sequence * p.key_heads + head) * places + place;
      zero(x, s.dp), zero(v, s.dvp);
      for (std::int64_t i = 0; i < s.d; ++i) x[i] = state.keys[row * s.d + i];
      for (std::int64_t i = 0; i < s.dv; ++i) v[i] = state.values[row * s.dv + i];
    } else if (t >= skipped && t < skipped + tokens) {
      const auto token = first + t - skipped;
      keys.live[t] = terms.live(token);
      own = terms.bias_or_zero(token);
    }
    if (keys.live[t]) {
      keys.token[t] = terms.with_norm(own, p.norm_term ? square_row(x, s.dp) : 0);
      if (local != nullptr) local[t] = p.norm_term ? own * kLog2E : 0;
    } else {
      keys.masked = true;
      zero(x, s.dp), zero(v, s.dvp);
      keys.token[t] = -__builtin_inff();
      if (local != nullptr) local[t] = -__builtin_inff();
    }
  }
}

/// What the own factor of a query adds to the log2 of its far weights: exp(-|x|^2 / 2 + query_bias)
/// / m.
class QueryTerms {
 public:
  QueryTerms(const FavorProblem& p, std::int64_t head, Span span)
      : problem_(p),
        bias_(p.query_bias.data),
        half_norm_(p.norm_term ? static_cast<float>(-0.5 * p.scale) * kLog2E : 0),
        constant_(static_cast<float>(p.far_log2)) {
    const TokenBias& b = p.query_bias;
    if (bias_ != nullptr) {
      bias_ += span.batch * b.batch + head_of(head, p.heads, b.heads) * b.head;
    }
  }

  float operator()(std::int64_t token, float square) const {
    const float own = bias_ == nullptr ? 0 : bias_[token * problem_.query_bias.token] * kLog2E;
    return half_norm_ == 0 ? own + constant_ : (own + constant_) + half_norm_ * square;
  }

 private:
  const FavorProblem& problem_;
  const float* bias_;
  float half_norm_, constant_;
};

}  // namespace performer::kernels::PERFORMER_ISA
