#pragma once

#include "performer/kernels/cpu/near/queries.h"
#include "performer/kernels/cpu/near/sums.h"

// What a block of rows adds to the sums that keys far from it meet.
namespace performer::kernels::PERFORMER_ISA {

/// Of rows dS_r += w_ir / D_i g_i and dz_r -= w_ir / D_i along_i.
class RowSums {
 public:
  RowSums(const FavorProblem& p, const Sizes& s, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        projection_(p, s, scratch),
        features_(scratch.floats(kChunk * s.ldf)),
        token_(scratch.floats(kChunk)) {}
  static std::int64_t floats(const Sizes& s) {
    return Projection::floats(s) + kChunk * (s.ldf + 1) + 2 * kLine;
  }

  /// `rows` are loaded, and their g is lost.
  /// Whether there were any.
  bool add(const QueryTile& rows, std::int64_t head, const RowFacts& facts, State& to,
           Holds holds) {
    const auto& s = sizes_;
    float along[kChunk] = {};
    bool any = false;
    for (std::int64_t i = 0; i < rows.count(); ++i) {
      const auto row = rows.row() + i;
      const float denominator = facts.denominator[row];
      const bool live = denominator != 0;
      any = any || live;
      token_[i] = live ? rows.whole()[i] - facts.log2[row] : -__builtin_inff();
      const Vec factor = splat(live ? rows.fraction()[i] / denominator : 0);
      along[i] = live ? facts.along[row] * factor[0] : 0;
      float* g = rows.g() + i * s.dvp;
      for (std::int64_t e = 0; e < s.dvp; e += kLanes) store(g + e, load(g + e) * factor);
    }
    if (!any) return false;
    projection_.pack_queries(head);
    projection_.token_major(rows.q(), rows.count(), token_, features_);
    set_scales(s, features_, rows.count(), to, holds);
    for (std::int64_t n = 0; n < s.mp; n += kLanes) {
      const Vec c = load(to.scale + n);
      Vec sum{};
      for (std::int64_t i = 0; i < rows.count(); ++i) {
        float* at = features_ + i * s.ldf + n;
        const Vec w = exp2(load(at) - c);
        store(at, w);
        sum += w * splat(along[i]);
      }
      store(to.normalizer + n, load(to.normalizer + n) - sum);
    }
    add_products(s, features_, rows.count(), rows.g(), to, holds);
    return true;
  }

 private:
  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection projection_;
  float *features_, *token_;
};

}  // namespace performer::kernels::PERFORMER_ISA
