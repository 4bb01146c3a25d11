#pragma once

#include "performer/kernels/cpu/causal_rows.h"

// The gradient of causal FAVOR+: a forward walk over chunks for q, with the states S recomputed,
// and a backward walk for k and v, with dS = sum over later rows of p g (backward.h). Everything is
// feature-major [mp, kChunk]. In-chunk pairs are formed relative to the same scales as the walk's
// sums: those of S forwards; those of dS, which keys absorb, backwards. p_ir phi_jr <= den_i for
// j <= i, so that only pairs the mask removes can be large; beyond the headroom the pass gives up.
namespace performer::kernels::PERFORMER_ISA {

class CausalBackward {
 public:
  /// `row_room`: ChunkRows' `room`.
  CausalBackward(const FavorProblem& p, const Sizes& s, Scratch scratch, float* row_room)
      : problem_(p),
        sizes_(s),
        key_projection_(p, s, scratch),
        keys_(p, s, key_projection_, scratch),
        rows_(p, s, scratch, row_room),
        state_(s, scratch),
        u_(scratch.floats(s.mp * kChunk)),
        phi_(scratch.floats(s.mp * kChunk)),
        slope_(scratch.floats(s.mp * kChunk)),
        eps_slope_(scratch.floats(s.mp * kChunk)),
        g_t_(scratch.floats(s.dvp * kChunk)),
        v_t_(scratch.floats(s.dvp * kChunk)),
        weights_(scratch.floats(kChunk * kChunk)),
        products_(scratch.floats(kChunk * kChunk)),
        dx_(scratch.floats(kChunk * s.dp)),
        dv_(scratch.floats(kChunk * s.dvp)) {}
  CausalBackward(const CausalBackward&) = delete;  // its parts refer to each other
  CausalBackward& operator=(const CausalBackward&) = delete;

  static std::size_t bytes(const Sizes& s) {
    const auto floats = ChunkKeys::floats(s) + ChunkRows::floats(s) + Projection::floats(s) +
                        State::floats(s) + kChunk * (4 * s.mp + s.dp + 3 * s.dvp + 2 * kChunk) +
                        16 * kLine;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  State& state() { return state_; }

  /// The head whose keys follow.
  void pack_keys(std::int64_t state_head) { key_projection_.pack_keys(state_head); }

  /// Gradients of the queries of chunks [begin, end), from the state before them, which becomes
  /// that after them. False where the keys outgrow the headroom.
  bool walk_queries(ChunkAt at, std::int64_t end, const BackwardInputs& in,
                    const BackwardOutputs& out) {
    for (; at.begin < end; at.begin += kChunk) {
      at.tokens = least(kChunk, end - at.begin);
      keys_.take(at.head, at.span, at.begin, at.tokens);
      keys_.make_features(state_);
      if (keys_.bad() < at.tokens) return false;
      for (std::int64_t g = 0; g < rows_.group(); ++g) query_gradient(at, g, in, out);
      keys_.add_to(state_, u_);
    }
    return true;
  }

  /// dS and dz of the rows of chunks [begin, end), added to the state. walk_queries has been there.
  void add_rows(ChunkAt at, std::int64_t end, const BackwardInputs& in,
                const BackwardOutputs& out) {
    for (; at.begin < end; at.begin += kChunk) {
      at.tokens = least(kChunk, end - at.begin);
      for (std::int64_t g = 0; g < rows_.group(); ++g) {
        rows_.take(at, g, in);
        if (problem_.map == Map::kExponential) rows_.lift_scales(state_);
        rows_.take_back(at, g, out.k);
        rows_.make_features(state_.scale, -1);
        rows_.add_to(state_, at.tokens);
      }
    }
  }

  /// Gradients of the keys of chunks [begin, end), last to first, from the dS of the rows after
  /// them, which becomes that of all rows from `begin` on.
  bool walk_keys(ChunkAt at, std::int64_t end, const BackwardInputs& in,
                 const BackwardOutputs& out) {
    const auto begin = at.begin;
    for (auto chunk = (end - begin + kChunk - 1) / kChunk; chunk-- > 0;) {
      at.begin = begin + chunk * kChunk;
      at.tokens = least(kChunk, end - at.begin);
      if (!key_gradient(at, in, out)) return false;
    }
    return true;
  }

  /// dS in true values is the gradient of the final state's tensors times 2^-c.
  void load_final_gradient(const BackwardInputs& in, std::int64_t index) {
    const auto& s = sizes_;
    clear_gradient();
    if (in.grad_state.normalizer == nullptr) return;
    state_.load(s, in.grad_state, index);
    for (std::int64_t r = 0; r < s.m; ++r) {
      const auto c = static_cast<float>(in.state.log2_scale[index * s.m + r]);
      state_.scale[r] = c > kReachedScale ? -c : kEmptyScale;
      if (problem_.map != Map::kExponential) state_.scale[r] = 0;
    }
  }

  /// No dS yet. That of generalised maps has the scale 1 of their features.
  void clear_gradient() {
    state_.clear(sizes_);
    if (problem_.map != Map::kExponential) zero(state_.scale, sizes_.mp);
  }

 private:
  void query_gradient(const ChunkAt& at, std::int64_t g, const BackwardInputs& in,
                      const BackwardOutputs& out) {
    const auto& s = sizes_;
    rows_.take(at, g, in);
    transpose_tokens(rows_.g(), at.tokens, s.dvp, g_t_);
    rows_.make_features(keys_.reference(), 1);
    make_query_pairs(at.tokens);
    gemm<Plus::kNothing>(s.mp, kChunk, s.dv, {state_.sum, s.dvp, 1}, Right::rows(g_t_, kChunk),
                         slope_, kChunk);
    divide_rows(at.tokens);
    for (std::int64_t j = 0; j < at.tokens; ++j) {
      for (std::int64_t i = j; i < kChunk; ++i) products_[j * kChunk + i] -= rows_.along()[i];
    }
    gemm<Plus::kSelf>(s.mp, kChunk, at.tokens, {keys_.phi(), kChunk, 1},
                      Right::rows(products_, kChunk), slope_, kChunk);
    finish_query_slopes();
    rows_.projection().pull_back({slope_, 1, kChunk}, at.tokens, dx_);
    store_tokens(out.q, problem_.dtype, at.span.batch, at.head * rows_.group() + g,
                 at.span.begin + at.begin, at.tokens, s.d, s.dp, dx_);
    rows_.keep(at, g, out.k);
  }

  // weights_ [j, i] = phi_j . p_i; products_ [j, i] = v_j . g_i; both 0 for j > i.
  void make_query_pairs(std::int64_t tokens) {
    const auto& s = sizes_;
    for (std::int64_t j = 0; j < tokens; j += kBlockRows) {
      const auto rows = least<std::int64_t>(kBlockRows, tokens - j);
      const auto from = j / kLanes * kLanes;
      float* weights = weights_ + j * kChunk + from;
      float* products = products_ + j * kChunk + from;
      gemm<Plus::kNothing>(rows, kChunk - from, s.mp, {keys_.phi() + j, 1, kChunk},
                           Right::rows(rows_.p() + from, kChunk), weights, kChunk);
      gemm<Plus::kNothing>(rows, kChunk - from, s.dv, {keys_.v() + j * s.dvp, s.dvp, 1},
                           Right::rows(g_t_ + from, kChunk), products, kChunk);
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      zero(weights_ + j * kChunk, j);
      zero(products_ + j * kChunk, j);
    }
  }

  // The inverse denominators of the rows, and `along`: g times their output. slope_ = S g.
  void divide_rows(std::int64_t tokens) {
    Vec along[kChunk / kLanes] = {}, sum[kChunk / kLanes] = {};
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const Vec z = splat(state_.normalizer[r]);
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto at = r * kChunk + n * kLanes;
        along[n] += load(rows_.p() + at) * load(slope_ + at);
        sum[n] += load(rows_.p() + at) * z;
      }
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      for (int n = 0; n < kChunk / kLanes; ++n) sum[n] += load(weights_ + j * kChunk + n * kLanes);
    }
    // The sum of these same weights, whatever kernel the forward pass was: rows sum to 1.
    float* inverses = rows_.inverse();
    for (int n = 0; n < kChunk / kLanes; ++n) {
      const Vec present = load(inverses + n * kLanes);
      const Vec inverse = present == Vec{} || sum[n] == Vec{} ? Vec{} : splat(1) / sum[n];
      store(inverses + n * kLanes, inverse);
      along[n] *= inverse;
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto at = j * kChunk + n * kLanes;
        const Vec weight = load(weights_ + at) * load(inverses + n * kLanes);
        along[n] += weight * load(products_ + at);
      }
    }
    for (int n = 0; n < kChunk / kLanes; ++n) store(rows_.along() + n * kLanes, along[n]);
  }

  // From the gradient of the rows' sums to that of u.
  void finish_query_slopes() {
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const Vec z = splat(state_.normalizer[r]);
      float* slope = slope_ + r * kChunk;
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        const Vec difference = load(slope + i) - load(rows_.along() + i) * z;
        const Vec gradient = difference * load(rows_.inverse() + i);
        store(slope + i, problem_.map == Map::kExponential
                             ? gradient * load(rows_.p() + r * kChunk + i)
                             : gradient);
      }
      rows_.apply_slopes(slope, r);
    }
  }

  // phi_ = phi(k) 2^scale; false where one outgrows the headroom.
  bool key_features(const ChunkAt& at) {
    const auto& s = sizes_;
    keys_.take(at.head, at.span, at.begin, at.tokens);
    keys_.project(u_, eps_slope_);
    if (problem_.map != Map::kExponential) {
      for (std::int64_t r = 0; r < s.mp; ++r) {
        float* phi = phi_ + r * kChunk;
        map_values(problem_.map, phi, u_ + r * kChunk, keys_.projection().eps() + r, 0, kChunk);
        for (std::int64_t j = 0; j < kChunk; ++j) phi[j] = keys_.live(j) ? phi[j] : 0;
      }
      return true;
    }
    Vec top = splat(-__builtin_inff());
    for (std::int64_t r = 0; r < s.mp; ++r) {
      const Vec e = splat(state_.scale[r]);
#pragma GCC unroll 16
      for (std::int64_t j = 0; j < kChunk; j += kLanes) {
        const Vec l = load(u_ + r * kChunk + j) + e;
        top = max(l, top);
        store(phi_ + r * kChunk + j, exp2(l));
      }
    }
    return !(max_lanes(top) > kChunkHeadroom);
  }

  bool key_gradient(const ChunkAt& at, const BackwardInputs& in, const BackwardOutputs& out) {
    const auto& s = sizes_;
    const bool exponential = problem_.map == Map::kExponential;
    for (std::int64_t g = 0; g < rows_.group() && exponential; ++g) {
      rows_.take(at, g, in);
      rows_.lift_scales(state_);
    }
    if (!key_features(at)) return false;
    transpose_tokens(keys_.v(), at.tokens, s.dvp, v_t_);
    gemm<Plus::kOffsets>(s.mp, kChunk, s.dv, {state_.sum, s.dvp, 1}, Right::rows(v_t_, kChunk),
                         slope_, kChunk, {state_.normalizer, rows_.zeros()});
    gemm<Plus::kNothing>(at.tokens, s.dvp, s.mp, {phi_, 1, kChunk}, Right::rows(state_.sum, s.dvp),
                         dv_, s.dvp);
    for (std::int64_t g = 0; g < rows_.group(); ++g) {
      if (rows_.group() > 1 || !exponential) rows_.take(at, g, in);
      rows_.take_back(at, g, out.k);
      add_row_gradients(at.tokens);
    }
    finish_key_slopes(at.tokens);
    const auto first = at.span.begin + at.begin;
    store_tokens(out.k, problem_.dtype, at.span.batch, at.head, first, at.tokens, s.d, s.dp, dx_);
    store_tokens(out.v, problem_.dtype, at.span.batch, at.head, first, at.tokens, s.dv, s.dvp, dv_);
    return true;
  }

  // The rows of one query head: their pairs within the chunk, then their part of dS.
  void add_row_gradients(std::int64_t tokens) {
    const auto& s = sizes_;
    rows_.make_features(state_.scale, -1);
    // weights_ [i, j] = p_i . phi_j / den_i; products_ [i, j] = (g_i . v_j - along_i) / den_i; both
    // 0 for j > i.
    for (std::int64_t i = 0; i < tokens; i += kBlockRows) {
      const auto rows = least<std::int64_t>(kBlockRows, tokens - i);
      const auto columns = round_up(i + rows, kLanes);
      gemm<Plus::kNothing>(rows, columns, s.mp, {rows_.p() + i, 1, kChunk},
                           Right::rows(phi_, kChunk), weights_ + i * kChunk, kChunk);
      gemm<Plus::kNothing>(rows, columns, s.dv, {rows_.g() + i * s.dvp, s.dvp, 1},
                           Right::rows(v_t_, kChunk), products_ + i * kChunk, kChunk);
    }
    const float *inverse = rows_.inverse(), *along = rows_.along();
    for (std::int64_t i = 0; i < tokens; ++i) {
      float* weights = weights_ + i * kChunk;
      float* products = products_ + i * kChunk;
      for (std::int64_t j = 0; j <= i; ++j) {
        weights[j] *= inverse[i];
        products[j] = (products[j] - along[i]) * inverse[i];
      }
      zero(weights + i + 1, kChunk - i - 1);
      zero(products + i + 1, kChunk - i - 1);
    }
    gemm<Plus::kSelf>(s.mp, kChunk, tokens, {rows_.p(), kChunk, 1}, Right::rows(products_, kChunk),
                      slope_, kChunk);
    gemm<Plus::kSelf>(tokens, s.dvp, tokens, {weights_, 1, kChunk}, Right::rows(rows_.g(), s.dvp),
                      dv_, s.dvp);
    rows_.add_to(state_, tokens);
  }

  // From the gradient of the keys' features to dx_.
  void finish_key_slopes(std::int64_t tokens) {
    const auto& s = sizes_;
    Vec total[kChunk / kLanes] = {};
    for (std::int64_t r = 0; r < s.mp; ++r) {
      float* slope = slope_ + r * kChunk;
      if (problem_.map != Map::kExponential) {
        multiply_slopes(problem_.map, slope, u_ + r * kChunk, kChunk);
        for (std::int64_t j = 0; j < kChunk; ++j) slope[j] = keys_.live(j) ? slope[j] : 0;
        continue;
      }
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const Vec g = load(slope + n * kLanes) * load(phi_ + r * kChunk + n * kLanes);
        store(slope + n * kLanes, g);
        total[n] += g;
      }
      if (keys_.projection().log_sum().active()) multiply(slope, eps_slope_ + r * kChunk, kChunk);
    }
    keys_.projection().pull_back({slope_, 1, kChunk}, tokens, dx_);
    if (!problem_.norm_term) return;
    float sums[kChunk];
    for (int n = 0; n < kChunk / kLanes; ++n) store(sums + n * kLanes, total[n]);
    for (std::int64_t j = 0; j < tokens; ++j) {
      const Vec factor = splat(static_cast<float>(problem_.scale) * sums[j]);
      for (std::int64_t i = 0; i < s.dp; i += kLanes) {
        float* at = dx_ + j * s.dp + i;
        store(at, load(at) - factor * load(keys_.x() + j * s.dp + i));
      }
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection key_projection_;
  ChunkKeys keys_;
  ChunkRows rows_;
  State state_;  // S forwards, dS backwards
  float *u_, *phi_, *slope_, *eps_slope_, *g_t_, *v_t_, *weights_, *products_, *dx_, *dv_;
};

}  // namespace performer::kernels::PERFORMER_ISA
