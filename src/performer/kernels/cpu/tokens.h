#pragma once

#include "performer/kernels/cpu/convert.h"
#include "performer/kernels/cpu/layout.h"

// Tiles of tokens in float32 scratch, zeros in the padding and in masked rows.
namespace performer::kernels::PERFORMER_ISA {

/// rows [tokens, padded] of one head, from token `begin` of batch entry `batch`.
inline void load_tokens(const TokenView& view, Dtype dtype, std::int64_t batch, std::int64_t head,
                        std::int64_t begin, std::int64_t tokens, std::int64_t width,
                        std::int64_t padded, float* rows) {
  const auto base = batch * view.batch + head * view.head;
  for (std::int64_t t = 0; t < tokens; ++t) {
    float* row = rows + t * padded;
    load_row(row, view, dtype, base + (begin + t) * view.token, width);
    for (std::int64_t i = width; i < padded; ++i) row[i] = 0;
  }
}

inline void store_tokens(const TokenView& view, Dtype dtype, std::int64_t batch, std::int64_t head,
                         std::int64_t begin, std::int64_t tokens, std::int64_t width,
                         std::int64_t padded, const float* rows) {
  const auto base = batch * view.batch + head * view.head;
  for (std::int64_t t = 0; t < tokens; ++t) {
    store_row(view, dtype, base + (begin + t) * view.token, rows + t * padded, width);
  }
}

inline void zero(float* x, std::int64_t n) {
  __builtin_memset(x, 0, static_cast<std::size_t>(n) * sizeof(float));
}

/// x_t [padded, kChunk] of rows [tokens, padded]; zeros beyond the last token.
inline void transpose_tokens(const float* rows, std::int64_t tokens, std::int64_t padded,
                             float* x_t) {
  if (tokens < kChunk) zero(x_t, padded * kChunk);
  for (std::int64_t i = 0; i < padded; i += kLanes) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* row = rows + t * padded + i;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) x_t[(i + lane) * kChunk + t] = row[lane];
    }
  }
}

/// The keys of a tile: rows, values, and what each token adds to its log2 features.
struct Keys {
  float* x;          // [tokens, dp]
  float* v;          // [tokens, dvp]
  float* token;      // [tokens] -inf where masked (exponential maps), else 0
  bool masked;       // some token is
  bool live[kTile];  // defined where masked
};

inline bool any_live(const Keys& keys, std::int64_t tokens) {
  bool any = !keys.masked;
  for (std::int64_t t = 0; t < tokens && !any; ++t) any = keys.live[t];
  return any;
}

/// Which keys of a sequence are there, and what each adds to its log2 features.
class KeyTerms {
 public:
  KeyTerms(const FavorProblem& p, std::int64_t state_head, Span span)
      : problem_(p),
        mask_(p.key_mask),
        bias_(p.key_bias),
        half_norm_(static_cast<float>(-0.5 * p.scale) * kLog2E) {
    if (mask_ != nullptr) mask_ += span.batch * p.mask_batch;
    if (bias_ != nullptr) {
      const auto head = head_of(state_head, p.state_heads, p.key_bias_heads);
      bias_ += span.batch * p.key_bias_batch + head * p.key_bias_head;
    }
  }

  bool live(std::int64_t token) const {
    return (mask_ == nullptr || mask_[token * problem_.mask_token]) &&
           (bias_ == nullptr || bias(token) != -__builtin_inff());
  }
  /// square: |k|^2.
  float token(std::int64_t token, float square) const {
    return with_norm(bias_or_zero(token), square);
  }
  float bias_or_zero(std::int64_t token) const { return bias_ == nullptr ? 0 : bias(token); }
  /// The same of a bias in natural units.
  float with_norm(float own, float square) const {
    return problem_.norm_term ? own * kLog2E + half_norm_ * square : own * kLog2E;
  }
  float absent() const { return problem_.map == Map::kExponential ? -__builtin_inff() : 0; }

 private:
  float bias(std::int64_t token) const { return bias_[token * problem_.key_bias_token]; }

  const FavorProblem& problem_;
  const bool* mask_;
  const float* bias_;
  float half_norm_;
};

inline float square_row(const float* x, std::int64_t n) {
  Vec sum{};
  for (std::int64_t i = 0; i < n; i += kLanes) sum += load(x + i) * load(x + i);
  return sum_lanes(sum);
}

inline void load_keys(const FavorProblem& p, const Sizes& s, std::int64_t state_head, Span span,
                      std::int64_t begin, std::int64_t tokens, Keys& keys) {
  const auto head = head_of(state_head, p.state_heads, p.key_heads);
  const auto first = span.begin + begin;
  load_tokens(p.k, p.dtype, span.batch, head, first, tokens, s.d, s.dp, keys.x);
  load_tokens(p.v, p.dtype, span.batch, head, first, tokens, s.dv, s.dvp, keys.v);
  const KeyTerms terms(p, state_head, span);
  keys.masked = false;
  for (std::int64_t t = 0; t < tokens; ++t) {
    keys.live[t] = terms.live(first + t);
    if (keys.live[t]) {
      const float square = p.norm_term ? square_row(keys.x + t * s.dp, s.dp) : 0;
      keys.token[t] = terms.token(first + t, square);
    } else {
      keys.masked = true;
      zero(keys.x + t * s.dp, s.dp);
      zero(keys.v + t * s.dvp, s.dvp);
      keys.token[t] = terms.absent();
    }
  }
}

}  // namespace performer::kernels::PERFORMER_ISA
