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

inline void load_keys(const FavorProblem& p, const Sizes& s, std::int64_t state_head, Span span,
                      std::int64_t begin, std::int64_t tokens, Keys& keys) {
  const auto head = head_of(state_head, p.state_heads, p.key_heads);
  const auto first = span.begin + begin;
  load_tokens(p.k, p.dtype, span.batch, head, first, tokens, s.d, s.dp, keys.x);
  load_tokens(p.v, p.dtype, span.batch, head, first, tokens, s.dv, s.dvp, keys.v);
  keys.masked = false;
  const float* bias = p.key_bias;
  if (bias != nullptr) {
    const auto bias_head = head_of(state_head, p.state_heads, p.key_bias_heads);
    bias += span.batch * p.key_bias_batch + bias_head * p.key_bias_head;
  }
  const auto half_norm = static_cast<float>(-0.5 * p.scale) * kLog2E;
  for (std::int64_t t = 0; t < tokens; ++t) {
    float token = 0;
    bool live = p.key_mask == nullptr ||
                p.key_mask[span.batch * p.mask_batch + (first + t) * p.mask_token];
    if (bias != nullptr) {
      const float b = bias[(first + t) * p.key_bias_token];
      live = live && b != -__builtin_inff();
      token = b * kLog2E;
    }
    keys.live[t] = live;
    if (!live) {
      keys.masked = true;
      zero(keys.x + t * s.dp, s.dp);
      zero(keys.v + t * s.dvp, s.dvp);
      token = p.map == Map::kExponential ? -__builtin_inff() : 0;
    } else if (p.norm_term) {
      Vec sum{};
      for (std::int64_t i = 0; i < s.dp; i += kLanes) {
        const Vec x = load(keys.x + t * s.dp + i);
        sum += x * x;
      }
      token += half_norm * sum_lanes(sum);
    }
    keys.token[t] = token;
  }
}

}  // namespace performer::kernels::PERFORMER_ISA
