#pragma once

#include "performer/kernels/cpu/backward.h"
#include "performer/kernels/cpu/near/forward_rows.h"
#include "performer/kernels/cpu/near/queries.h"
#include "performer/kernels/cpu/near/stretch.h"

// The gradients of queries with a near field. Weights w and values of the exact keys and of the far
// sums share a row's denominator D and its along = g . out:
//   d score_ij       = w_ij / D (g_i . v_j - along_i)
//   d log phi_r(q_i) = w_ir / D (g_i . S_r - along_i z_r), and the sum of these is what the log of
// the query's own factor, -|x|^2 / 2, gets. Features are [mp, kChunk].
namespace performer::kernels::PERFORMER_ISA {

struct NearBackwardArgs {
  const BackwardInputs& in;
  const BackwardOutputs& out;
  RowFacts rows;
};

class BackwardQueries {
 public:
  BackwardQueries(const FavorProblem& p, const Sizes& s, Scratch& scratch,
                  const NearBackwardArgs& args)
      : problem_(p),
        sizes_(s),
        args_(args),
        keys_(p, s, scratch),
        window_(p, s, scratch, true),
        projection_(p, s, scratch),
        scores_(p, s, scratch),
        products_(p, s, scratch),
        queries_(p, s, scratch),
        q_t_(scratch.floats(s.dp * kChunk)),
        g_t_(scratch.floats(s.dvp * kChunk)),
        u_(scratch.floats(s.mp * kChunk)),
        slope_(scratch.floats(s.mp * kChunk)),
        dx_(scratch.floats(kChunk * s.dp)),
        along_(scratch.floats(kChunk)),
        denominator_(scratch.floats(kChunk)),
        own_(scratch.floats(kChunk)),
        zeros_(scratch.floats(most(s.dp, kChunk))) {
    zero(zeros_, most(s.dp, kChunk));
  }

  static std::int64_t floats(const FavorProblem& p, const Sizes& s) {
    return KeySums::floats(s) + Window::floats(p, s, true) + Projection::floats(s) +
           2 * NearScores::floats(p) + QueryTile::floats(s) +
           kChunk * (2 * s.dp + s.dvp + 2 * s.mp + 4) + s.dp + 10 * kLine;
  }

  void begin(const Slots& at, std::int64_t state_head, const Stretch& stretch) {
    at_ = &at, head_ = state_head, stretch_ = stretch;
    window_.clear();
    const auto group = problem_.heads / problem_.state_heads;
    zero_tokens(problem_, args_.out.q, at, head_ * group, group, sizes_.d, zeros_);
  }
  void add(std::int64_t c, State& to, Holds holds) { keys_.add(*at_, head_, c, to, holds); }
  void finish(State&) {}

  /// The sum of the rows of the block used next goes there, too: w_i / D_i [g_i, -along_i] in the
  /// scales of the keys far from them, which are those of all pairs that it will be in.
  void keep(const State& sum) { kept_ = sum, keeps_ = true; }

  void use(std::int64_t c, const State& far) {
    Holds holds = Holds::kNothing;
    const auto take = [&](std::int64_t index) { return &window_.take(*at_, head_, index); };
    NearTile tile{take(c - 1), take(c), nullptr, 0, 0};
    if (!problem_.causal && c + 1 < at_->blocks()) tile.after = take(c + 1);
    const auto group = problem_.heads / problem_.state_heads;
    each_tile(*at_, c, kChunk, [&](Slots::Range range, std::int64_t offset) {
      tile.offset = offset, tile.rows = range.end - range.begin;
      for (std::int64_t g = 0; g < group; ++g) {
        const auto head = head_ * group + g;
        queries_.load(*at_, head, range, args_.in.grad_out);
        queries_.make_factors(*at_, head, range.begin);
        if (sizes_.m > 0) projection_.pack_queries(head);
        gradient(tile, far);
        if (keeps_ && sizes_.m > 0) sum_rows(tile, far, holds);
        holds = Holds::kSums;
        store_tokens(args_.out.q, problem_.dtype, at_->span.batch, head,
                     at_->span.begin + range.begin, tile.rows, sizes_.d, sizes_.dp, dx_);
      }
    });
    store_keys(*tile.prior);
    if (c + 1 == stretch_.end) store_keys(*tile.own);
    if (keeps_ && holds == Holds::kNothing) kept_.clear(sizes_);
    keeps_ = false;
  }

 private:
  void gradient(const NearTile& tile, const State& far) {
    const auto& s = sizes_;
    float log2[kChunk];
    for (float& scale : log2) scale = 0x1p30F;  // of rows that are not there: weights of 0
    scores_.form(tile, queries_.q());
    products_.multiply_values(tile, queries_.g());
    if (s.m > 0) {
      transpose_tokens(queries_.q(), tile.rows, s.dp, q_t_);
      transpose_tokens(queries_.g(), tile.rows, s.dvp, g_t_);
      projection_.feature_major(q_t_, zeros_, u_);
      gemm<Plus::kNothing>(s.mp, kChunk, s.dv, {far.sum, s.dvp, 1}, Right::rows(g_t_, kChunk),
                           slope_, kChunk);
    }
    row_scales(tile, far, log2);
    weigh(tile, far, log2);
    finish_far(tile, far);
    scores_.clear_rest(tile);
    add_to_keys(tile, queries_.g(), s.dvp, &NearBlock::dv);
    for (std::int64_t i = 0; i < tile.rows; ++i) finish_near(tile, i);
    add_to_keys(tile, queries_.q(), s.dp, &NearBlock::dk);
    add_to_queries(tile);
    float *to_log2 = args_.rows.log2 + queries_.row(),
          *to_denominator = args_.rows.denominator + queries_.row(),
          *to_along = args_.rows.along + queries_.row();
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      to_log2[i] = log2[i], to_denominator[i] = denominator_[i], to_along[i] = along_[i];
    }
  }

  void row_scales(const NearTile& tile, const State& far, float* log2) const {
    Vec top[kChunk / kLanes];
    for (Vec& v : top) v = splat(-__builtin_inff());
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const Vec c = splat(far.scale[r]);
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto i = n * kLanes;
        top[n] = max(load(u_ + r * kChunk + i) + (c + load(queries_.whole() + i)), top[n]);
      }
    }
    float tops[kChunk];
    for (int n = 0; n < kChunk / kLanes; ++n) store(tops + n * kLanes, top[n]);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const float near = scores_.top(tile, i);
      log2[i] = round_up_log2(near > tops[i] ? near : tops[i]);
    }
  }

  // u_ and scores become weights; the denominators and `along` of all rows.
  void weigh(const NearTile& tile, const State& far, const float* log2) {
    Vec sum[kChunk / kLanes] = {}, along[kChunk / kLanes] = {};
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const Vec c = splat(far.scale[r]), z = splat(far.normalizer[r]);
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto i = n * kLanes;
        float* at = u_ + r * kChunk + i;
        const Vec shift = load(log2 + i) - load(queries_.whole() + i);
        const Vec w = exp2(load(at) + (c - shift)) * load(queries_.fraction() + i);
        store(at, w);
        sum[n] += w * z;
        along[n] += w * load(slope_ + r * kChunk + i);
      }
    }
    for (int n = 0; n < kChunk / kLanes; ++n) {
      store(denominator_ + n * kLanes, sum[n]);
      store(along_ + n * kLanes, along[n]);
    }
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      denominator_[i] += scores_.exponentials(tile, i, log2[i]);
      const float one_over = denominator_[i] == 0 ? 0 : 1 / denominator_[i];
      // Weights of exact keys are divided one by one: that of a single key is then 1.
      along_[i] = along_[i] * one_over + shares(tile, i);
    }
  }

  // Weights of exact keys become shares; their part of `along`.
  float shares(const NearTile& tile, std::int64_t i) {
    float *w = scores_.row(i), *product = products_.row(i);
    const Vec divisor = splat(denominator_[i] == 0 ? 1 : denominator_[i]);
    Vec along{};
    for (std::int64_t j = 0; j < scores_.columns(tile, i); j += kLanes) {
      const Vec p = load(w + j) / divisor;
      store(w + j, p);
      along += p * load(product + j);
    }
    return sum_lanes(along);
  }

  // dx_ of the far field.
  void finish_far(const NearTile& tile, const State& far) {
    const auto& s = sizes_;
    zero(dx_, kChunk * s.dp);
    if (s.m == 0) return;
    Vec inverse[kChunk / kLanes], total[kChunk / kLanes] = {};
    for (int n = 0; n < kChunk / kLanes; ++n) {
      const Vec d = load(denominator_ + n * kLanes);
      inverse[n] = d == Vec{} ? Vec{} : splat(1) / d;
    }
    for (std::int64_t r = 0; r < s.mp; ++r) {
      const Vec z = splat(far.normalizer[r]);
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto at = r * kChunk + n * kLanes;
        const Vec difference = load(slope_ + at) - load(along_ + n * kLanes) * z;
        const Vec g = difference * inverse[n] * load(u_ + at);
        store(slope_ + at, g);
        total[n] += g;
      }
    }
    projection_.pull_back({slope_, 1, kChunk}, tile.rows, dx_);
    if (!problem_.norm_term) return;
    for (int n = 0; n < kChunk / kLanes; ++n) store(own_ + n * kLanes, total[n]);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const Vec factor = splat(static_cast<float>(problem_.scale) * own_[i]);
      for (std::int64_t e = 0; e < s.dp; e += kLanes) {
        float* at = dx_ + i * s.dp + e;
        store(at, load(at) - factor * load(queries_.q() + i * s.dp + e));
      }
    }
  }

  // Shares become the gradients of scale-free scores.
  void finish_near(const NearTile& tile, std::int64_t i) {
    float* p = scores_.row(i);
    const float* product = products_.row(i);
    const Vec along = splat(along_[i]), scale = splat(static_cast<float>(problem_.scale));
    for (std::int64_t j = 0; j < scores_.columns(tile, i); j += kLanes) {
      store(p + j, load(p + j) * (load(product + j) - along) * scale);
    }
  }

  // u_ holds w. g is divided on the way.
  void sum_rows(const NearTile& tile, const State& far, Holds holds) {
    const auto& s = sizes_;
    float along[kChunk] = {};
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const float inverse = denominator_[i] == 0 ? 0 : 1 / denominator_[i];
      divide_gradient(s, queries_.g() + i * s.dvp, inverse);
      along[i] = along_[i] * inverse;
    }
    const Left left{u_, kChunk, 1};
    const Right right = Right::rows(queries_.g(), s.dvp);
    if (holds == Holds::kSums) {
      gemm<Plus::kSelf>(s.mp, s.dvp, tile.rows, left, right, kept_.sum, s.dvp);
    } else {
      gemm<Plus::kNothing>(s.mp, s.dvp, tile.rows, left, right, kept_.sum, s.dvp);
    }
    for (std::int64_t r = 0; r < s.mp; ++r) {
      Vec sum{};
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        sum += load(u_ + r * kChunk + i) * load(along + i);
      }
      kept_.scale[r] = far.scale[r] > kReachedScale ? -far.scale[r] : kEmptyScale;
      kept_.normalizer[r] = (holds == Holds::kSums ? kept_.normalizer[r] : 0) - sum_lanes(sum);
    }
  }

  // Of keys in the stretch: those of its neighbours come from the walk over keys.
  void add_to_keys(const NearTile& tile, const float* rows, std::int64_t width,
                   float* NearBlock::*to) const {
    std::int64_t column = 0;
    NearBlock* blocks[] = {tile.prior, tile.own, tile.after};
    for (NearBlock* block : blocks) {
      if (block != nullptr && holds(block->index)) {
        scores_.add_transposed(tile, column, rows, width, block->*to);
      }
      column += scores_.padded();
    }
  }

  bool holds(std::int64_t block) const { return block >= stretch_.begin && block < stretch_.end; }

  // What the rows of the stretch give to a block of keys, for the walk over keys to add to.
  void store_keys(const NearBlock& block) const {
    if (!holds(block.index)) return;
    const auto& s = sizes_;
    const auto slot = block.index * at_->b;
    const auto range = at_->range(slot, slot + at_->b);
    const auto skipped = at_->first - at_->origin + range.begin - slot;
    const auto first = at_->span.begin + range.begin, count = range.end - range.begin;
    store_tokens(args_.out.k, problem_.dtype, at_->span.batch, head_, first, count, s.d, s.dp,
                 block.dk + skipped * s.dp);
    store_tokens(args_.out.v, problem_.dtype, at_->span.batch, head_, first, count, s.dv, s.dvp,
                 block.dv + skipped * s.dvp);
  }

  void add_to_queries(const NearTile& tile) {
    const auto& s = sizes_;
    scores_.each_part(tile, [&](const NearPart& part) {
      gemm<Plus::kSelf>(part.rows, s.dp, part.keys,
                        {scores_.row(part.first) + part.column, scores_.ld(), 1},
                        Right::rows(part.block.x, s.dp), dx_ + part.first * s.dp, s.dp);
    });
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  const NearBackwardArgs& args_;
  KeySums keys_;
  Window window_;
  Projection projection_;
  NearScores scores_, products_;
  QueryTile queries_;
  float *q_t_, *g_t_, *u_, *slope_, *dx_, *along_, *denominator_, *own_, *zeros_;
  const Slots* at_ = nullptr;
  Stretch stretch_{};
  State kept_{};
  bool keeps_ = false;
  std::int64_t head_ = 0;
};

}  // namespace performer::kernels::PERFORMER_ISA
