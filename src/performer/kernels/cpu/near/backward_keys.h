#pragma once

#include "performer/kernels/cpu/near/backward_queries.h"
#include "performer/kernels/cpu/near/row_sums.h"

// The gradients of keys and values with a near field. Far rows come as the sum over their features,
//   dS_r = sum_i w_ir / D_i [g_i, -along_i],  d log phi_r(k) = phi_r (v . dS_r + dz_r),  dv = phi dS
// What the rows give that see the keys exactly is there already (backward_queries.h), but for those
// of another stretch. Features are [mp, kChunk].
namespace performer::kernels::PERFORMER_ISA {

class BackwardKeys {
 public:
  BackwardKeys(const FavorProblem& p, const Sizes& s, Scratch& scratch,
               const NearBackwardArgs& args)
      : problem_(p),
        sizes_(s),
        args_(args),
        sums_(p, s, scratch),
        rows_(p, s, scratch),
        projection_(p, s, scratch),
        x_(scratch.floats(kChunk * s.dp)),
        x_t_(scratch.floats(s.dp * kChunk)),
        v_(scratch.floats(kChunk * s.dvp)),
        v_t_(scratch.floats(s.dvp * kChunk)),
        phi_(scratch.floats(s.mp * kChunk)),
        slope_(scratch.floats(s.mp * kChunk)),
        weights_(scratch.floats(kChunk * kChunk)),
        products_(scratch.floats(kChunk * kChunk)),
        dx_(scratch.floats(kChunk * s.dp)),
        dv_(scratch.floats(kChunk * s.dvp)),
        token_(scratch.floats(kChunk)),
        bias_(scratch.floats(kChunk)),
        zeros_(scratch.floats(most(most(s.dp, s.dvp), s.mp))) {
    zero(zeros_, most(most(s.dp, s.dvp), s.mp));
  }

  static std::int64_t floats(const FavorProblem&, const Sizes& s) {
    return RowSums::floats(s) + QueryTile::floats(s) + Projection::floats(s) +
           kChunk * (3 * s.dp + 3 * s.dvp + 2 * s.mp + 2 * kChunk + 2) + s.dp + s.dvp + s.mp +
           14 * kLine;
  }

  void begin(const Slots& at, std::int64_t state_head, const Stretch& stretch) {
    at_ = &at, head_ = state_head, stretch_ = stretch;
    zero_tokens(problem_, args_.out.k, at, head_, 1, sizes_.d, zeros_);
    zero_tokens(problem_, args_.out.v, at, head_, 1, sizes_.dv, zeros_);
  }
  void finish(State&) {}

  void add(std::int64_t c, State& to, Holds holds) {
    if (sizes_.m == 0) return;
    each_rows(c, [&](std::int64_t head, Slots::Range range, std::int64_t) {
      rows_.make_factors(*at_, head, range.begin);
      if (sums_.add(rows_, head, args_.rows, to, holds)) holds = Holds::kSums;
    });
    if (holds == Holds::kNothing) to.clear(sizes_);
  }

  void use(std::int64_t c, const State& far) {
    const auto& s = sizes_;
    each_tile(*at_, c, kChunk, [&](Slots::Range range, std::int64_t offset) {
      const auto count = range.end - range.begin;
      load_tile(c * at_->b + offset, count);
      far_gradient(count, far);
      const auto last = least(c + 1, at_->blocks() - 1);
      for (auto rows = problem_.causal ? c : most(c - 1, std::int64_t{1}); rows <= last; ++rows) {
        if (rows >= stretch_.begin && rows < stretch_.end) continue;
        each_rows(rows, [&](std::int64_t, Slots::Range, std::int64_t) { near_gradient(count); });
      }
      add_stored(range);
      const auto first = at_->span.begin + range.begin;
      store_tokens(args_.out.k, problem_.dtype, at_->span.batch, head_, first, count, s.d, s.dp,
                   dx_);
      store_tokens(args_.out.v, problem_.dtype, at_->span.batch, head_, first, count, s.dv, s.dvp,
                   dv_);
    });
  }

 private:
  // All query tiles of a block, loaded.
  template <class Body>
  void each_rows(std::int64_t c, Body body) {
    const auto group = problem_.heads / problem_.state_heads;
    for (std::int64_t g = 0; g < group; ++g) {
      const auto head = head_ * group + g;
      each_tile(*at_, c, kChunk, [&](Slots::Range range, std::int64_t offset) {
        rows_.load(*at_, head, range, args_.in.grad_out);
        body(head, range, offset);
      });
    }
  }

  void load_tile(std::int64_t slot, std::int64_t count) {
    const auto& s = sizes_;
    Keys keys{x_, v_, token_, false, {}};
    load_slots(problem_, s, *at_, head_, slot, count, keys, bias_);
    for (auto j = count; j < kChunk; ++j) token_[j] = bias_[j] = -__builtin_inff();
    transpose_tokens(x_, count, s.dp, x_t_);
    transpose_tokens(v_, count, s.dvp, v_t_);
  }

  // dx_ and dv_ of the far rows.
  void far_gradient(std::int64_t count, const State& far) {
    const auto& s = sizes_;
    zero(dx_, kChunk * s.dp), zero(dv_, kChunk * s.dvp);
    if (s.m == 0) return;
    projection_.pack_keys(head_);
    projection_.feature_major(x_t_, token_, phi_);
    gemm<Plus::kOffsets>(s.mp, kChunk, s.dv, {far.sum, s.dvp, 1}, Right::rows(v_t_, kChunk), slope_,
                         kChunk, {far.normalizer, zeros_of_columns()});
    Vec total[kChunk / kLanes] = {};
    for (std::int64_t r = 0; r < s.mp; ++r) {
      const Vec scale = splat(far.scale[r]);
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto at = r * kChunk + n * kLanes;
        const Vec phi = exp2(load(phi_ + at) + scale), g = phi * load(slope_ + at);
        store(phi_ + at, phi);
        store(slope_ + at, g);
        total[n] += g;
      }
    }
    gemm<Plus::kNothing>(count, s.dvp, s.mp, {phi_, 1, kChunk}, Right::rows(far.sum, s.dvp), dv_,
                         s.dvp);
    projection_.pull_back({slope_, 1, kChunk}, count, dx_);
    if (!problem_.norm_term) return;
    float sums[kChunk];
    for (int n = 0; n < kChunk / kLanes; ++n) store(sums + n * kLanes, total[n]);
    for (std::int64_t j = 0; j < count; ++j) {
      const Vec factor = splat(static_cast<float>(problem_.scale) * sums[j]);
      for (std::int64_t e = 0; e < s.dp; e += kLanes) {
        float* at = dx_ + j * s.dp + e;
        store(at, load(at) - factor * load(x_ + j * s.dp + e));
      }
    }
  }

  // dx_ and dv_ of the rows of the stretch that see the keys exactly.
  void add_stored(Slots::Range range) {
    const auto& s = sizes_;
    const auto first = at_->span.begin + range.begin, count = range.end - range.begin;
    load_tokens(args_.out.k, problem_.dtype, at_->span.batch, head_, first, count, s.d, s.dp, x_);
    load_tokens(args_.out.v, problem_.dtype, at_->span.batch, head_, first, count, s.dv, s.dvp, v_);
    for (std::int64_t i = 0; i < count * s.dp; i += kLanes) {
      store(dx_ + i, load(dx_ + i) + load(x_ + i));
    }
    for (std::int64_t i = 0; i < count * s.dvp; i += kLanes) {
      store(dv_ + i, load(dv_ + i) + load(v_ + i));
    }
  }

  // Of the rows at hand, which see all of the keys exactly.
  void near_gradient(std::int64_t count) {
    const auto& s = sizes_;
    const auto rows = rows_.count(), columns = round_up(count, kLanes);
    const Vec to_log2 = splat(static_cast<float>(problem_.scale * 1.4426950408889634074));
    const Vec scale = splat(static_cast<float>(problem_.scale));
    gemm<Plus::kNothing>(rows, columns, s.d, {rows_.q(), s.dp, 1}, Right::rows(x_t_, kChunk),
                         weights_, kChunk);
    gemm<Plus::kNothing>(rows, columns, s.dv, {rows_.g(), s.dvp, 1}, Right::rows(v_t_, kChunk),
                         products_, kChunk);
    for (std::int64_t i = 0; i < rows; ++i) {
      float *weight = weights_ + i * kChunk, *product = products_ + i * kChunk;
      const auto row = rows_.row() + i;
      const float denominator = args_.rows.denominator[row];
      const auto end = denominator == 0 ? 0 : columns;
      const Vec shift = splat(args_.rows.log2[row]), along = splat(args_.rows.along[row]);
      const Vec divisor = splat(denominator);
      for (std::int64_t j = 0; j < end; j += kLanes) {
        const Vec l = load(weight + j) * to_log2 + load(bias_ + j);
        const Vec p = exp2(l - shift) / divisor;
        store(weight + j, p);
        store(product + j, p * (load(product + j) - along) * scale);
      }
      zero(weight + end, columns - end), zero(product + end, columns - end);
    }
    gemm<Plus::kSelf>(count, s.dp, rows, {products_, 1, kChunk}, Right::rows(rows_.q(), s.dp), dx_,
                      s.dp);
    gemm<Plus::kSelf>(count, s.dvp, rows, {weights_, 1, kChunk}, Right::rows(rows_.g(), s.dvp), dv_,
                      s.dvp);
  }

  const float* zeros_of_columns() const { return zero_columns_; }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  const NearBackwardArgs& args_;
  RowSums sums_;
  QueryTile rows_;
  Projection projection_;
  float *x_, *x_t_, *v_, *v_t_, *phi_, *slope_, *weights_, *products_, *dx_, *dv_, *token_, *bias_,
      *zeros_;
  float zero_columns_[kChunk] = {};
  const Slots* at_ = nullptr;
  Stretch stretch_{};
  std::int64_t head_ = 0;
};

}  // namespace performer::kernels::PERFORMER_ISA
