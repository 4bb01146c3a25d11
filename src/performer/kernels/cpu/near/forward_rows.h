#pragma once

#include "performer/kernels/cpu/forward.h"
#include "performer/kernels/cpu/near/scores.h"

// Rows of a block of queries: exact weights of the keys close by, and feature weights of the sums of
// all others, under one power of two per row and one division.
namespace performer::kernels::PERFORMER_ISA {

/// Tokens of a tile of queries: equal shares of a block.
inline std::int64_t tile_rows(std::int64_t b, std::int64_t most_rows) {
  const auto tiles = (b + most_rows - 1) / most_rows;
  return (b + tiles - 1) / tiles;
}

/// Calls body(range, offset) for tiles of at most `most_rows` tokens of block c, of which the first
/// is in place `offset` of the block.
template <class Body>
inline void each_tile(const Slots& at, std::int64_t c, std::int64_t most_rows, Body body) {
  const auto begin = c * at.b, step = tile_rows(at.b, most_rows);
  for (std::int64_t offset = 0; offset < at.b; offset += step) {
    const auto range = at.range(begin + offset, begin + least(offset + step, at.b));
    if (range.begin < range.end) body(range, range.begin - at.origin + at.first - begin);
  }
}

class ForwardRows {
 public:
  ForwardRows(const FavorProblem& p, const Sizes& s, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        projection_(p, s, scratch),
        scores_(p, s, scratch),
        q_(scratch.floats(kTile * s.dp)),
        features_(scratch.floats(kTile * s.ldf)),
        out_(scratch.floats(kTile * s.dvp)),
        own_(scratch.floats(kTile)),
        zeros_(scratch.floats(kTile)) {
    zero(own_, kTile), zero(zeros_, kTile);
  }

  static std::int64_t floats(const FavorProblem& p, const Sizes& s) {
    return Projection::floats(s) + NearScores::floats(p) + kTile * (s.dp + s.ldf + s.dvp + 2) +
           5 * kLine;
  }

  /// All rows of a block, of all query heads of the key head. far: what is not near them.
  void attend(const Slots& at, std::int64_t state_head, NearTile tile, const State& far,
              const ForwardOutputs& outputs) {
    const auto group = problem_.heads / problem_.state_heads;
    each_tile(at, tile.own->index, kTile, [&](Slots::Range range, std::int64_t offset) {
      tile.rows = range.end - range.begin, tile.offset = offset;
      for (std::int64_t g = 0; g < group; ++g) {
        attend_tile(at, state_head * group + g, range.begin, tile, far, outputs);
      }
    });
  }

  /// [dvp] zeros.
  float* zero_row() {
    zero(out_, sizes_.dvp);
    return out_;
  }

 private:
  void attend_tile(const Slots& at, std::int64_t head, std::int64_t begin, const NearTile& tile,
                   const State& far, const ForwardOutputs& outputs) {
    const auto& s = sizes_;
    const auto first = at.span.begin + begin;
    load_tokens(problem_.q, problem_.dtype, at.span.batch, head, first, tile.rows, s.d, s.dp, q_);
    if (s.m > 0) {
      const QueryTerms terms(problem_, head, at.span);
      for (std::int64_t i = 0; i < tile.rows; ++i) {
        own_[i] = terms(first + i, problem_.norm_term ? square_row(q_ + i * s.dp, s.dp) : 0);
      }
      projection_.pack_queries(head);
      projection_.token_major(q_, tile.rows, zeros_, features_);
    }
    scores_.form(tile, q_);
    RowScale rows[kTile];
    for (std::int64_t i = 0; i < tile.rows; ++i) rows[i] = weigh(tile, i, far);
    gemm<Plus::kNothing>(tile.rows, s.dvp, s.mp, {features_, s.ldf, 1}, Right::rows(far.sum, s.dvp),
                         out_, s.dvp);
    scores_.add_values(tile, out_);
    const auto row = (at.span.batch * problem_.heads + head) * problem_.query_length + first;
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const bool reached = rows[i].sum == 0 && sees_key(tile, i, far);
      divide_row(problem_.map, s, out_ + i * s.dvp, rows[i].sum, reached);
      outputs.row_sum[row + i] = rows[i].sum;
      outputs.row_log2_scale[row + i] = static_cast<std::int32_t>(rows[i].log2);
    }
    store_tokens(outputs.out, problem_.dtype, at.span.batch, head, first, tile.rows, s.dv, s.dvp,
                 out_);
  }

  // Scores and features of a row become weights.
  RowScale weigh(const NearTile& tile, std::int64_t i, const State& far) {
    const auto& s = sizes_;
    float *l = features_ + i * s.ldf, *near = scores_.row(i);
    const auto columns = scores_.columns(tile, i);
    Vec top = splat(-__builtin_inff());
    for (std::int64_t j = 0; j < columns; j += kLanes) top = max(load(near + j), top);
    // The query's own factor, 2^whole fraction: a large term would take bits from l.
    const float whole = round_up_log2(own_[i]);
    const Vec fraction = exp2(splat(own_[i] - whole));
    for (std::int64_t n = 0; n < s.mp; n += kLanes) {
      top = max(load(l + n) + (load(far.scale + n) + splat(whole)), top);
    }
    const float log2 = round_up_log2(max_lanes(top));
    const Vec shift = splat(log2), far_shift = splat(log2 - whole);
    Vec sum{};
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      const Vec p = exp2(load(near + j) - shift);
      store(near + j, p);
      sum += p;
    }
    for (std::int64_t n = 0; n < s.mp; n += kLanes) {
      const Vec phi = exp2(load(l + n) + (load(far.scale + n) - far_shift)) * fraction;
      store(l + n, phi);
      sum += phi * load(far.normalizer + n);
    }
    return {sum_lanes(sum), log2};
  }

  bool sees_key(const NearTile& tile, std::int64_t i, const State& far) const {
    const auto live = [](const NearBlock* block, std::int64_t end) {
      for (std::int64_t j = 0; block != nullptr && j < end; ++j) {
        if (block->bias[j] != -__builtin_inff()) return true;
      }
      return false;
    };
    const auto b = problem_.near;
    return far.reached(sizes_) || live(tile.prior, b) ||
           live(tile.own, problem_.causal ? tile.offset + i + 1 : b) || live(tile.after, b);
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection projection_;
  NearScores scores_;
  float *q_, *features_, *out_, *own_, *zeros_;
};

}  // namespace performer::kernels::PERFORMER_ISA
