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
  static constexpr std::int64_t kRows = 32;
  static constexpr std::int64_t kQueries = 96;

  PairForward(const FavorProblem& p, const Sizes& s, Scratch scratch)
      : problem_(p),
        sizes_(s),
        state_(s, scratch),
        projection_(p, s, scratch),
        u_(scratch.floats(most(kQueries * s.ldf, kRows * kTokens))),
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
    const auto floats =
        State::floats(s) + PairProjection::floats(s) + most(kQueries * s.ldf, kRows * kTokens) +
        kTokens * (s.mp / 2 + s.dp + wide / 2 + s.dvp + 1) + s.mp * wide / 2 + s.mp + 12 * kLine;
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
      for (std::int64_t r = 0; r < s.mp; r += kRows) {  // rows that stay in the first-level cache
        projection_.feature_major(x_t_, kTokens, r, kRows, u_);
        for (std::int64_t i = 0; i < kRows; i += kLanes) {
          problem_.map == Map::kExponential ? key_exponentials(r + i, u_ + i * kTokens)
                                            : key_values(r + i, u_ + i * kTokens);
        }
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
      PairRow rows[kTokens];
      for (std::int64_t t = 0; t < padded; t += kQueries) {
        const auto count = least(kQueries, padded - t);
        projection_.token_major(x_ + t * s.dp / 2, count, u_);
        for (std::int64_t i = 0; i < count; i += kLanes) {
          problem_.map == Map::kExponential
              ? query_exponentials(t + i, u_ + i * s.ldf, rows + t + i)
              : query_values(t + i, u_ + i * s.ldf, rows + t + i);
        }
      }
      const auto row_index = (span.batch * problem_.heads + head) * problem_.query_length + first;
      for (std::int64_t t = 0; t < tokens; ++t) {
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
      const auto whole = view.element == 1 ? width / 32 * 32 : 0;
      for (; filled < whole; filled += 32) {
        _mm512_storeu_si512(to + filled, _mm512_loadu_si512(from + filled));
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
    any_live_ = false;
    const auto k_base = span.batch * problem_.k.batch + head * problem_.k.head;
    const auto v_base = span.batch * problem_.v.batch + head * problem_.v.head;
    alignas(64) Pair value_row[2][kMostWidth / 2];
    for (std::int64_t t = 0; t < kTokens; t += 2) {
      for (std::int64_t e = 0; e < 2; ++e) {
        Pair* row = x_ + (t + e) * s.dp / 2;
        const bool live = t + e < tokens && terms.live(first + t + e);
        live_[t + e] = live;
        any_live_ = any_live_ || live;
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

  // Sixteen features from r on; u: their rows [16, kTokens].
  void key_exponentials(std::int64_t r, const float* u) {
    LaneReduction tops;
    for (std::int64_t i = 0; i < kLanes; ++i) {
      Vec top = splat(-__builtin_inff());
#pragma GCC unroll 12
      for (std::int64_t t = 0; t < kTokens; t += kLanes) {
        top = max(load(u + i * kTokens + t) + load(token_ + t), top);
      }
      tops.set(i, top);
    }
    float needed[kLanes];
    store(needed, tops.max() + load(projection_.bias() + r));
    for (std::int64_t i = 0; i < kLanes && any_live_; ++i) {
      const float scale = round_up_log2(needed[i]);
      if (scale > state_.scale[r + i]) state_.lift(sizes_, r + i, scale);
    }
    LaneReduction sums;
    for (std::int64_t i = 0; i < kLanes; ++i) {
      const float* row = u + i * kTokens;
      const Vec shift = splat(projection_.bias()[r + i] - state_.scale[r + i]);
      const auto at = [&](std::int64_t t) {
        return round_pair(exp2((load(row + t) + load(token_ + t)) + shift));
      };
      Vec sum{};
#pragma GCC unroll 6
      for (std::int64_t t = 0; t < kTokens; t += 2 * kLanes) {
        const Vec low = at(t), high = at(t + kLanes);
        store_row_pairs(phi_ + ((r + i) * kTokens + t) / 2, low, high);
        sum += low + high;
      }
      sums.set(i, sum);
    }
    store(state_.normalizer + r, load(state_.normalizer + r) + sums.sum());
  }

  void key_values(std::int64_t first, float* u) {
    for (std::int64_t r = first; r < first + kLanes; ++r) {
      float* row = u + (r - first) * kTokens;
      map_values(problem_.map, row, row, projection_.eps() + r, 0, kTokens);
      for (std::int64_t t = 0; t < kTokens; ++t) row[t] = live_[t] ? row[t] : 0;
      Vec sum{};
      for (std::int64_t t = 0; t < kTokens; t += 2 * kLanes) {
        const Vec low = round_pair(load(row + t)), high = round_pair(load(row + t + kLanes));
        store_row_pairs(phi_ + (r * kTokens + t) / 2, low, high);
        sum += low + high;
      }
      state_.normalizer[r] += sum_lanes(sum);
      if (any_live_ && r < sizes_.m && state_.scale[r] <= kReachedScale) state_.scale[r] = 0;
    }
  }

  /// divisor: of the rounded weights, as the products see them. sum: of the weights before, which
  /// the backward pass forms again.
  struct PairRow {
    float divisor, sum, log2;
  };

  // Sixteen tokens from t on; u: their rows [16, ldf].
  void query_exponentials(std::int64_t t, const float* u, PairRow* rows) {
    const auto& s = sizes_;
    LaneReduction tops, divisors, sums;
    for (std::int64_t i = 0; i < kLanes; ++i) {
      Vec top = splat(-__builtin_inff());
      for (std::int64_t n = 0; n < s.mp; n += kLanes) {
        top = max(load(u + i * s.ldf + n) + load(offset_ + n), top);
      }
      tops.set(i, top);
    }
    float log2[kLanes];
    store(log2, tops.max());
    for (std::int64_t i = 0; i < kLanes; ++i) {
      const float* row = u + i * s.ldf;
      rows[i].log2 = round_up_log2(log2[i]);
      const Vec shift = splat(rows[i].log2);
      const auto at = [&](std::int64_t n) {
        return exp2(load(row + n) + (load(offset_ + n) - shift));
      };
      Vec divisor{}, sum{};
      for (std::int64_t n = 0; n < s.mp; n += 2 * kLanes) {
        add_weights(t + i, n, at(n), at(n + kLanes), divisor, sum);
      }
      divisors.set(i, divisor);
      sums.set(i, sum);
    }
    set_rows(divisors, sums, rows);
  }

  void query_values(std::int64_t t, float* u, PairRow* rows) {
    const auto& s = sizes_;
    LaneReduction divisors, sums;
    for (std::int64_t i = 0; i < kLanes; ++i) {
      float* row = u + i * s.ldf;
      map_values(problem_.map, row, row, projection_.eps(), 1, s.mp);
      Vec divisor{}, sum{};
      for (std::int64_t n = 0; n < s.mp; n += 2 * kLanes) {
        add_weights(t + i, n, load(row + n), load(row + n + kLanes), divisor, sum);
      }
      divisors.set(i, divisor);
      sums.set(i, sum);
      rows[i].log2 = 0;
    }
    set_rows(divisors, sums, rows);
  }

  static void set_rows(const LaneReduction& divisors, const LaneReduction& sums, PairRow* rows) {
    float divisor[kLanes], sum[kLanes];
    store(divisor, divisors.sum());
    store(sum, sums.sum());
    for (std::int64_t i = 0; i < kLanes; ++i) {
      rows[i].divisor = divisor[i];
      rows[i].sum = sum[i];
    }
  }

  void add_weights(std::int64_t t, std::int64_t n, Vec low, Vec high, Vec& divisor, Vec& sum) {
    const Vec z_low = load(state_.normalizer + n), z_high = load(state_.normalizer + n + kLanes);
    const Vec rounded_low = round_pair(low), rounded_high = round_pair(high);
    sum += low * z_low + high * z_high;
    divisor += rounded_low * z_low + rounded_high * z_high;
    store_row_pairs(phi_ + (t * sizes_.mp + n) / 2, rounded_low, rounded_high);
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
  bool any_live_ = false;
};

/// Features of either sign cancel, and rounding them first would leave little.
inline bool has_signs(Map map) {
  return map == Map::kGelu || map == Map::kCos || map == Map::kTanh || map == Map::kIdentity ||
         map == Map::kSgn;
}

inline bool serves_pairs(const FavorProblem& p) {
  return p.dtype == Dtype::kBfloat16 && !p.causal && p.near == 0 && p.w_query.data != nullptr &&
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
