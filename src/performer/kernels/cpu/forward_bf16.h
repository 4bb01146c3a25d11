#pragma once

#include "performer/kernels/cpu/forward.h"
#include "performer/kernels/cpu/projection_bf16.h"

// Bidirectional FAVOR+ on bfloat16 tokens by bfloat16 products: features are rounded to bfloat16
// once, and sums, scales and denominators stay float32 (forward.h). Keys are feature-major, so that
// their features are the left operand of S += phi^T v as they come; queries are token-major.
namespace performer::kernels::PERFORMER_ISA {

class PairForward {
 public:
  static constexpr std::int64_t kTokens = 192;

  PairForward(const FavorProblem& p, const Sizes& s, Scratch scratch)
      : problem_(p),
        sizes_(s),
        state_(s, scratch),
        projection_(p, s, scratch),
        u_(scratch.floats(most(kTokens * s.ldf, s.mp * kTokens))),
        phi_(pairs(scratch, kTokens * s.mp)),
        x_(pairs(scratch, kTokens * s.dp)),
        x_t_(pairs(scratch, kTokens * s.dp)),
        v_(pairs(scratch, kTokens * round_up(s.dvp, kPanel))),
        sums_(pairs(scratch, s.mp * round_up(s.dvp, kPanel))),
        out_(scratch.floats(kTokens * s.dvp)),
        token_(scratch.floats(kTokens)),
        offset_(scratch.floats(s.mp)) {}

  static std::size_t bytes(const Sizes& s) {
    const auto wide = round_up(s.dvp, kPanel);
    const auto floats = State::floats(s) + PairProjection::floats(s) +
                        kTokens * (s.ldf + s.mp / 2 + s.dp + wide / 2 + s.dvp + 1) +
                        s.mp * wide / 2 + s.mp + 12 * kLanes;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  State& state() { return state_; }

  void add_keys(std::int64_t state_head, Span span, std::int64_t begin, std::int64_t end) {
    const auto& s = sizes_;
    projection_.pack(problem_.w_key, problem_.bias_key, state_head, problem_.state_heads);
    for (; begin < end; begin += kTokens) {
      load_pairs(state_head, span, begin, least(kTokens, end - begin));
      for (std::int64_t t = 0; t < kTokens; t += 16) {
        for (std::int64_t i = 0; i < s.dp / 2; i += 16) {
          transpose_words(x_ + t * s.dp / 2 + i, s.dp / 2,
                          x_t_ + (t / kPanel * s.dp / 2 + i) * kPanel + t % kPanel, kPanel);
        }
      }
      projection_.feature_major(x_t_, kTokens, u_, kTokens);
      for (std::int64_t r = 0; r < s.mp; ++r) {
        problem_.map == Map::kExponential ? key_exponentials(r) : key_values(r);
      }
      const PairPart part{phi_, v_};
      gemm_pairs<true>(s.mp, s.dvp, kTokens / 2, &part, 1, kTokens / 2, state_.sum, s.dvp);
    }
  }

  /// Makes the state an operand, for attend. S is rounded to bfloat16 as the features are; z is
  /// not.
  void pack_state() {
    const auto& s = sizes_;
    for (std::int64_t r = 0; r < s.mp; r += 2) {
      for (std::int64_t e = 0; e < s.dvp; e += kLanes) {
        const auto at = (e / kPanel * s.mp / 2 + r / 2) * kPanel + e % kPanel;
        _mm512_storeu_si512(sums_ + at,
                            pair_words(round_pair(load(state_.sum + r * s.dvp + e)),
                                       round_pair(load(state_.sum + (r + 1) * s.dvp + e))));
      }
    }
  }

  void attend(std::int64_t head, Span span, std::int64_t begin, std::int64_t end,
              const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    projection_.pack(problem_.w_query, problem_.bias_query, head, problem_.heads);
    const bool reached = state_.reached(s);
    for (std::int64_t r = 0; r < s.mp; ++r) offset_[r] = projection_.bias()[r] + state_.scale[r];
    for (; begin < end; begin += kTokens) {
      const auto tokens = least(kTokens, end - begin);
      const auto padded = round_up(tokens, kPairPad);
      const auto first = span.begin + begin;
      for (std::int64_t t = 0; t < padded; ++t) {
        load_pair_row(problem_.q, span.batch * problem_.q.batch + head * problem_.q.head, first, t,
                      tokens, s.d, s.dp, x_ + t * s.dp / 2);
      }
      projection_.token_major(x_, padded, u_);
      const auto row_index = (span.batch * problem_.heads + head) * problem_.query_length + first;
      PairRow rows[kTokens];
      for (std::int64_t t = 0; t < tokens; ++t) {
        rows[t] = problem_.map == Map::kExponential ? query_exponentials(t) : query_values(t);
        outputs.row_sum[row_index + t] = rows[t].sum;
        outputs.row_log2_scale[row_index + t] = static_cast<std::int32_t>(rows[t].log2);
      }
      const PairPart part{phi_, sums_};
      gemm_pairs<false>(padded, s.dvp, s.mp / 2, &part, 1, s.mp / 2, out_, s.dvp);
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (rows[t].divisor != 0) {
          scale_row(out_ + t * s.dvp, 1 / rows[t].divisor);
        } else {
          divide_row(problem_.map, s, out_ + t * s.dvp, 0, reached);
        }
      }
      store_tokens(outputs.out, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, out_);
    }
  }

 private:
  static Pair* pairs(Scratch& scratch, std::int64_t numbers) {
    return reinterpret_cast<Pair*>(scratch.floats(numbers / 2));
  }

  // Token first + t of a row-major pair tile, zeros beyond the last.
  void load_pair_row(const TokenView& view, std::int64_t base, std::int64_t first, std::int64_t t,
                     std::int64_t tokens, std::int64_t width, std::int64_t padded, Pair* row) {
    auto* to = reinterpret_cast<std::uint16_t*>(row);
    std::int64_t filled = 0;
    if (t < tokens) {
      const auto* from =
          static_cast<const std::uint16_t*>(view.data) + base + (first + t) * view.token;
      const auto whole = view.element == 1 ? width / 16 * 16 : 0;
      for (; filled < whole; filled += 16) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + filled),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + filled)));
      }
      for (; filled < width; ++filled) to[filled] = from[filled * view.element];
    }
    for (; filled < padded; ++filled) to[filled] = 0;
  }

  // x_ [kTokens, dp / 2], v_ in panels of pairs of tokens, token_ as in load_keys.
  void load_pairs(std::int64_t state_head, Span span, std::int64_t begin, std::int64_t tokens) {
    const auto& s = sizes_;
    const auto head = head_of(state_head, problem_.state_heads, problem_.key_heads);
    const auto first = span.begin + begin;
    const KeyTerms terms(problem_, state_head, span);
    const auto k_base = span.batch * problem_.k.batch + head * problem_.k.head;
    const auto v_base = span.batch * problem_.v.batch + head * problem_.v.head;
    alignas(64) Pair value_row[2][kMostWidth / 2];
    for (std::int64_t t = 0; t < kTokens; t += 2) {
      for (std::int64_t e = 0; e < 2; ++e) {
        Pair* row = x_ + (t + e) * s.dp / 2;
        const bool live = t + e < tokens && terms.live(first + t + e);
        live_[t + e] = live;
        const auto count = live ? tokens : 0;  // masked: zeros
        load_pair_row(problem_.k, k_base, first, t + e, count, s.d, s.dp, row);
        load_pair_row(problem_.v, v_base, first, t + e, count, s.dv, s.dvp, value_row[e]);
        token_[t + e] = live ? terms.token(first + t + e, square(row)) : terms.absent();
      }
      for (std::int64_t i = 0; i < s.dvp; i += kLanes) {
        const auto at = (i / kPanel * kTokens / 2 + t / 2) * kPanel + i % kPanel;
        const auto wide = [&](const Pair* row) {
          return _mm512_cvtepu16_epi32(
              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + i / 2)));
        };
        _mm512_storeu_si512(v_ + at, _mm512_or_si512(wide(value_row[0]),
                                                     _mm512_slli_epi32(wide(value_row[1]), 16)));
      }
    }
  }

  void scale_row(float* row, float factor) const {
    for (std::int64_t i = 0; i < sizes_.dvp; i += kLanes) {
      store(row + i, load(row + i) * splat(factor));
    }
  }

  float square(const Pair* row) const {
    Vec sum{};
    for (std::int64_t i = 0; i < sizes_.dp / 2; i += kLanes) {
      const __m512i words = _mm512_loadu_si512(row + i);
      const Vec even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
      const Vec odd = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)));
      sum += even * even + odd * odd;
    }
    return sum_lanes(sum);
  }

  void key_exponentials(std::int64_t r) {
    const float* row = u_ + r * kTokens;
    Vec top = splat(-__builtin_inff());
#pragma GCC unroll 12
    for (std::int64_t t = 0; t < kTokens; t += kLanes) {
      top = max(load(row + t) + load(token_ + t), top);
    }
    const float most_log2 = max_lanes(top) + projection_.bias()[r];
    if (most_log2 != -__builtin_inff()) {
      const float needed = round_up_log2(most_log2);
      if (needed > state_.scale[r]) state_.lift(sizes_, r, needed);
    }
    const Vec shift = splat(projection_.bias()[r] - state_.scale[r]);
    const auto at = [&](std::int64_t t) {
      return round_pair(exp2((load(row + t) + load(token_ + t)) + shift));
    };
    Vec sum{};
#pragma GCC unroll 6
    for (std::int64_t t = 0; t < kTokens; t += 2 * kLanes) {
      const Vec low = at(t), high = at(t + kLanes);
      store_row_pairs(phi_ + (r * kTokens + t) / 2, low, high);
      sum += low + high;
    }
    state_.normalizer[r] += sum_lanes(sum);
  }

  void key_values(std::int64_t r) {
    float* row = u_ + r * kTokens;
    map_values(problem_.map, row, row, projection_.eps() + r, 0, kTokens);
    bool any = false;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      if (!live_[t]) row[t] = 0;
      any = any || live_[t];
    }
    Vec sum{};
    for (std::int64_t t = 0; t < kTokens; t += 2 * kLanes) {
      const Vec low = round_pair(load(row + t)), high = round_pair(load(row + t + kLanes));
      store_row_pairs(phi_ + (r * kTokens + t) / 2, low, high);
      sum += low + high;
    }
    state_.normalizer[r] += sum_lanes(sum);
    if (any && r < sizes_.m && state_.scale[r] <= kReachedScale) state_.scale[r] = 0;
  }

  /// divisor: of the rounded weights, as the products see them. sum: of the weights before, which
  /// the backward pass forms again.
  struct PairRow {
    float divisor, sum, log2;
  };

  PairRow query_exponentials(std::int64_t t) {
    const auto& s = sizes_;
    const float* row = u_ + t * s.ldf;
    Vec top = splat(-__builtin_inff());
    for (std::int64_t n = 0; n < s.mp; n += kLanes) {
      top = max(load(row + n) + load(offset_ + n), top);
    }
    const float log2 = round_up_log2(max_lanes(top));
    const Vec shift = splat(log2);
    Vec divisor{}, sum{};
    for (std::int64_t n = 0; n < s.mp; n += 2 * kLanes) {
      const auto at = [&](std::int64_t i) {
        return exp2(load(row + i) + (load(offset_ + i) - shift));
      };
      add_weights(t, n, at(n), at(n + kLanes), divisor, sum);
    }
    return {sum_lanes(divisor), sum_lanes(sum), log2};
  }

  void add_weights(std::int64_t t, std::int64_t n, Vec low, Vec high, Vec& divisor, Vec& sum) {
    const Vec z_low = load(state_.normalizer + n), z_high = load(state_.normalizer + n + kLanes);
    const Vec rounded_low = round_pair(low), rounded_high = round_pair(high);
    sum += low * z_low + high * z_high;
    divisor += rounded_low * z_low + rounded_high * z_high;
    store_row_pairs(phi_ + (t * sizes_.mp + n) / 2, rounded_low, rounded_high);
  }

  PairRow query_values(std::int64_t t) {
    const auto& s = sizes_;
    float* row = u_ + t * s.ldf;
    map_values(problem_.map, row, row, projection_.eps(), 1, s.mp);
    Vec divisor{}, sum{};
    for (std::int64_t n = 0; n < s.mp; n += 2 * kLanes) {
      add_weights(t, n, load(row + n), load(row + n + kLanes), divisor, sum);
    }
    return {sum_lanes(divisor), sum_lanes(sum), 0};
  }

 public:
  static constexpr std::int64_t kMostWidth = 512;  // of v: a row is taken apart on the stack

 private:
  const FavorProblem& problem_;
  const Sizes& sizes_;
  State state_;
  PairProjection projection_;
  float* u_;
  Pair *phi_, *x_, *x_t_, *v_, *sums_;
  float *out_, *token_;
  float* offset_;  // [mp] what a query adds to its projection: bias and scale
  bool live_[kTokens] = {};
};

/// Features of either sign cancel, and rounding them first would leave little.
inline bool has_signs(Map map) {
  return map == Map::kGelu || map == Map::kCos || map == Map::kTanh || map == Map::kIdentity ||
         map == Map::kSgn;
}

inline bool serves_pairs(const FavorProblem& p) {
  return p.dtype == Dtype::kBfloat16 && !p.causal && p.w_query.data != nullptr &&
         !has_signs(p.map) && p.value_dim <= PairForward::kMostWidth;
}

inline void pair_forward(const FavorProblem& p, const ForwardOutputs& outputs,
                         const Executor& executor) {
  const Sizes s(p, kPairPad);
  const Items key_items{p.state_heads, p.sequences};
  const auto key_length = [&](std::int64_t n) { return key_span(p, n).length; };
  sum_pieces<PairForward>(p, s, executor, key_items, key_length, p.initial, outputs.state,
                          [&](PairForward& forward, std::int64_t n, const Piece& piece) {
                            const TileConfig tiles;
                            forward.add_keys(key_items.head(piece.item), key_span(p, n),
                                             piece.begin, piece.end);
                          });

  const Items query_items{p.heads, p.sequences};
  const auto query_length = [&](std::int64_t n) { return query_span(p, n).length; };
  parallel(executor, executor.threads, [&](int task) {
    const TileConfig tiles;
    PairForward forward(p, s, Scratch(thread_workspace(PairForward::bytes(s))));
    for_each_piece(query_items, PairForward::kTokens, task, executor.threads, query_length,
                   [&](const Piece& piece) {
                     const auto n = query_items.sequence(piece.item);
                     const auto head = query_items.head(piece.item);
                     forward.state().load(s, outputs.state,
                                          state_index(p, n, head_of(head, p.heads, p.state_heads)));
                     forward.pack_state();
                     forward.attend(head, query_span(p, n), piece.begin, piece.end, outputs);
                   });
  });
}

}  // namespace performer::kernels::PERFORMER_ISA
