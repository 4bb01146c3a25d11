#pragma once

#include "performer/kernels/cpu/gemm.h"
#include "performer/kernels/cpu/near/window.h"

// Exact weights of a tile of queries, from scores to sums.
namespace performer::kernels::PERFORMER_ISA {

/// Rows of one block of queries and the blocks of keys that they see; `after` is null where causal,
/// or where there is none. Row i is in place `offset` + i of its block.
struct NearTile {
  NearBlock *prior, *own, *after;
  std::int64_t offset, rows;
};

/// Rows [first, first + rows) of a tile, and the first `keys` keys of a block.
struct NearPart {
  NearBlock& block;
  const float* values;  // [keys, dvp]
  std::int64_t first, rows, keys;
  std::int64_t column;  // of the block's first key
};

/// Exact scores of a tile in units of log2: rows of [ prior | own | after ], bp columns each.
class NearScores {
 public:
  NearScores(const FavorProblem& p, const Sizes& s, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        b_(p.near),
        bp_(round_up(p.near, kLanes)),
        ld_((p.causal ? 2 : 3) * bp_ + kLanes),
        to_log2_(static_cast<float>(p.scale * 1.4426950408889634074)),
        scores_(scratch.floats(kTile * ld_)) {}
  static std::int64_t floats(const FavorProblem& p) {
    return kTile * ((p.causal ? 2 : 3) * round_up(p.near, kLanes) + kLanes) + kLine;
  }

  float* row(std::int64_t i) const { return scores_ + i * ld_; }
  std::int64_t ld() const { return ld_; }
  std::int64_t padded() const { return bp_; }
  /// Columns of row i that are formed; whole vectors.
  std::int64_t columns(const NearTile& tile, std::int64_t i) const {
    if (problem_.causal) {
      const auto end = least<std::int64_t>(tile.rows, (i / kBlockRows + 1) * kBlockRows);
      return bp_ + round_up(tile.offset + end, kLanes);
    }
    return (tile.after == nullptr ? 2 : 3) * bp_;
  }

  /// q [rows, dp]. Columns of later keys are -inf where causal.
  void form(const NearTile& tile, const float* q) {
    each_part(tile, [&](const NearPart& part) {
      gemm<Plus::kNothing>(part.rows, round_up(part.keys, kLanes), sizes_.d,
                           {q + part.first * sizes_.dp, sizes_.dp, 1},
                           Right::rows(part.block.x_t, bp_), row(part.first) + part.column, ld_);
    });
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      // Units after the product: a factor on q would round every term of it.
      float* at = row(i);
      to_log2(*tile.prior, bp_, at);
      to_log2(*tile.own, least(columns(tile, i) - bp_, bp_), at + bp_);
      if (tile.after != nullptr) to_log2(*tile.after, bp_, at + 2 * bp_);
      if (!problem_.causal) continue;
      for (auto j = bp_ + tile.offset + i + 1; j < columns(tile, i); ++j) at[j] = -__builtin_inff();
    }
  }

  /// g [rows, dvp] times the values; 0 for those of later keys where causal.
  void multiply_values(const NearTile& tile, const float* g) {
    each_part(tile, [&](const NearPart& part) {
      gemm<Plus::kNothing>(part.rows, round_up(part.keys, kLanes), sizes_.dv,
                           {g + part.first * sizes_.dvp, sizes_.dvp, 1},
                           Right::rows(part.block.v_t, bp_), row(part.first) + part.column, ld_);
    });
    for (std::int64_t i = 0; i < tile.rows && problem_.causal; ++i) {
      const auto later = bp_ + tile.offset + i + 1;
      zero(row(i) + later, columns(tile, i) - later);
    }
  }

  float top(const NearTile& tile, std::int64_t i) const {
    Vec top = splat(-__builtin_inff());
    for (std::int64_t j = 0; j < columns(tile, i); j += kLanes) top = max(load(row(i) + j), top);
    return max_lanes(top);
  }

  /// Scores of a row become weights relative to 2^log2; their sum.
  float exponentials(const NearTile& tile, std::int64_t i, float log2) {
    const Vec shift = splat(log2);
    Vec sum{};
    for (std::int64_t j = 0; j < columns(tile, i); j += kLanes) {
      const Vec w = exp2(load(row(i) + j) - shift);
      store(row(i) + j, w);
      sum += w;
    }
    return sum_lanes(sum);
  }

  /// Zeros for the keys of the own block that come later than all of a few rows: they are not
  /// formed.
  void clear_rest(const NearTile& tile) {
    if (!problem_.causal) return;
    const auto end = bp_ + round_up(tile.offset + tile.rows, kLanes);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      zero(row(i) + columns(tile, i), end - columns(tile, i));
    }
  }

  /// to [keys, width] += weights^T rows, of one of the tile's blocks, `column` its first.
  void add_transposed(const NearTile& tile, std::int64_t column, const float* rows,
                      std::int64_t width, float* to) const {
    const bool own = problem_.causal && column == bp_;
    gemm<Plus::kSelf>(own ? tile.offset + tile.rows : b_, width, tile.rows,
                      {scores_ + column, 1, ld_}, Right::rows(rows, width), to, width);
  }

  /// out [rows, dvp] += weights values.
  void add_values(const NearTile& tile, float* out) const {
    each_part(tile, [&](const NearPart& part) {
      gemm<Plus::kSelf>(part.rows, sizes_.dvp, part.keys, {row(part.first) + part.column, ld_, 1},
                        Right::rows(part.values, sizes_.dvp), out + part.first * sizes_.dvp,
                        sizes_.dvp);
    });
    if (problem_.causal && tile.own->finite != tile.own->v) spread_nonfinite(tile, out);
  }

  /// Calls body(part) for the products of rows with the keys that they see: of the own block, where
  /// causal, few rows at a time.
  template <class Body>
  void each_part(const NearTile& tile, Body body) const {
    body(NearPart{*tile.prior, tile.prior->v, 0, tile.rows, b_, 0});
    if (!problem_.causal) {
      body(NearPart{*tile.own, tile.own->v, 0, tile.rows, b_, bp_});
      if (tile.after != nullptr)
        body(NearPart{*tile.after, tile.after->v, 0, tile.rows, b_, 2 * bp_});
      return;
    }
    for (std::int64_t i = 0; i < tile.rows; i += kBlockRows) {
      const auto count = least<std::int64_t>(kBlockRows, tile.rows - i);
      body(NearPart{*tile.own, tile.own->finite, i, count, tile.offset + i + count, bp_});
    }
  }

 private:
  // The first n scores of a row with a block.
  void to_log2(const NearBlock& block, std::int64_t n, float* at) const {
    const Vec factor = splat(to_log2_);
    for (std::int64_t j = 0; j < n; j += kLanes) {
      store(at + j, load(at + j) * factor + load(block.bias + j));
    }
  }

  // Values that are not finite reach the rows from their own on, in their own column.
  void spread_nonfinite(const NearTile& tile, float* out) const {
    const auto dvp = sizes_.dvp;
    for (std::int64_t e = 0; e < dvp; ++e) {
      float sum = 0;
      for (std::int64_t j = 0; j < tile.offset + tile.rows; ++j) {
        const float x = tile.own->v[j * dvp + e];
        if (x * 0 != 0) sum += x;
        if (sum != 0 && j >= tile.offset) out[(j - tile.offset) * dvp + e] += sum;
      }
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  std::int64_t b_, bp_, ld_;
  float to_log2_;
  float* scores_;
};

}  // namespace performer::kernels::PERFORMER_ISA
