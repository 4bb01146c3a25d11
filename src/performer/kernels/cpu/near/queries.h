#pragma once

#include "performer/kernels/cpu/near/slots.h"
#include "performer/kernels/cpu/projection.h"

// The rows of the backward passes.
namespace performer::kernels::PERFORMER_ISA {

/// What the pass over queries finds out about every row and that over keys needs: its scale, its
/// denominator in that scale (0: it sees no key), and the product of its gradient and its output.
/// [B, H, Lq] each.
struct RowFacts {
  float *log2, *denominator, *along;

  static std::int64_t floats(const FavorProblem& p) {
    return 3 * p.batch * p.heads * p.query_length;
  }
  static RowFacts in(float* memory, const FavorProblem& p) {
    const auto rows = floats(p) / 3;
    return {memory, memory + rows, memory + 2 * rows};
  }
};

/// Rows [begin, begin + count) of one head, at most kChunk, and 2^whole fraction, the own factor of
/// each one's far weights.
class QueryTile {
 public:
  QueryTile(const FavorProblem& p, const Sizes& s, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        q_(scratch.floats(kChunk * s.dp)),
        g_(scratch.floats(kChunk * s.dvp)),
        whole_(scratch.floats(kChunk)),
        fraction_(scratch.floats(kChunk)) {}
  static std::int64_t floats(const Sizes& s) { return kChunk * (s.dp + s.dvp + 2) + 4 * kLine; }

  void load(const Slots& at, std::int64_t head, Slots::Range range, const TokenView& grad) {
    const auto& s = sizes_;
    const auto first = at.span.begin + range.begin;
    count_ = range.end - range.begin;
    row_ = (at.span.batch * problem_.heads + head) * problem_.query_length + first;
    load_tokens(problem_.q, problem_.dtype, at.span.batch, head, first, count_, s.d, s.dp, q_);
    load_tokens(grad, problem_.dtype, at.span.batch, head, first, count_, s.dv, s.dvp, g_);
  }

  void make_factors(const Slots& at, std::int64_t head, std::int64_t begin) {
    zero(whole_, kChunk), zero(fraction_, kChunk);
    const QueryTerms terms(problem_, head, at.span);
    float own[kChunk] = {};
    for (std::int64_t i = 0; i < count_; ++i) {
      const float square = problem_.norm_term ? square_row(q_ + i * sizes_.dp, sizes_.dp) : 0;
      own[i] = terms(at.span.begin + begin + i, square);
      whole_[i] = round_up_log2(own[i]);
    }
    for (std::int64_t i = 0; i < count_; i += kLanes) {
      kernels::PERFORMER_ISA::store(fraction_ + i, exp2(kernels::PERFORMER_ISA::load(own + i) -
                                                        kernels::PERFORMER_ISA::load(whole_ + i)));
    }
  }

  const float* q() const { return q_; }                // [count, dp]
  float* g() const { return g_; }                      // [count, dvp]
  const float* whole() const { return whole_; }        // [kChunk]
  const float* fraction() const { return fraction_; }  // [kChunk]
  std::int64_t count() const { return count_; }
  std::int64_t row() const { return row_; }  // of [B, H, Lq]

 private:
  const FavorProblem& problem_;
  const Sizes& sizes_;
  float *q_, *g_, *whole_, *fraction_;
  std::int64_t count_ = 0, row_ = 0;
};

/// Zeros for tokens before the first real one, of `heads` heads from `head` on.
inline void zero_tokens(const FavorProblem& p, const TokenView& to, const Slots& at,
                        std::int64_t head, std::int64_t heads, std::int64_t width,
                        const float* zeros) {
  for (std::int64_t t = 0; t < at.origin; ++t) {
    for (std::int64_t h = head; h < head + heads; ++h) {
      store_tokens(to, p.dtype, at.span.batch, h, at.span.begin + t, 1, width, width, zeros);
    }
  }
}

}  // namespace performer::kernels::PERFORMER_ISA
