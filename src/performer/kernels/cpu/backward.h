#pragma once

#include "performer/kernels/cpu/features.h"
#include "performer/kernels/cpu/gemm.h"
#include "performer/kernels/cpu/sum_pieces.h"

// The gradient of bidirectional FAVOR+. With S, z, c of the forward pass, p_r = phi_r(q) 2^c_r, a
// row's incoming gradient g and along = g . out = sum_r p_r (g . S_r) / den:
//   queries  d log phi_r(q) = p_r (g . S_r - along z_r) / den
//            dS_r += p_r g / den,  dz_r -= p_r along / den
//   keys     phi_r = 2^(l - c),  d log phi_r(k) = phi_r (v . dS_r + dz_r),  dv = phi dS
// p_r z_r / den is a share and z_r > 1/2, so that p_r / den < 2: no scales beyond c. A row is
// divided after its difference is taken: where one key or feature decides, the difference is
// exactly 0.
namespace performer::kernels::PERFORMER_ISA {

/// 1 / den = inverse 2^-shift, den = sum 2^log2. A row without keys takes no part.
struct RowInverse {
  float inverse = 0, shift = 0;

  RowInverse(Map map, float sum, std::int32_t log2) {
    const bool exponential = map == Map::kExponential;
    int exponent = 0;
    const float divisor = exponential ? __builtin_frexpf(sum, &exponent) : sum;
    inverse = sum == 0 ? 0 : 1 / divisor;
    if (exponential) shift = sum == 0 ? __builtin_inff() : static_cast<float>(log2 + exponent);
  }
};

/// g [row, dvp] / den.
inline void divide_gradient(const Sizes& s, float* g, float inverse) {
  for (std::int64_t i = 0; i < s.dvp; i += kLanes) store(g + i, load(g + i) * splat(inverse));
}

/// panels of [depth, mp] of the first `depth` columns of matrix [mp, ld], transposed.
inline void transpose_panels(const Sizes& s, const float* matrix, std::int64_t depth,
                             std::int64_t ld, float* panels) {
  for (std::int64_t n = 0; n < s.mp; n += kPanel) {
    const auto width = least<std::int64_t>(kPanel, s.mp - n);
    for (std::int64_t r = 0; r < width; ++r) {
      for (std::int64_t i = 0; i < depth; ++i) {
        panels[n * depth + i * kPanel + r] = matrix[(n + r) * ld + i];
      }
    }
  }
}

class Backward {
 public:
  static constexpr std::int64_t kTokens = kTile;

  Backward(const FavorProblem& p, const Sizes& s, Scratch scratch)
      : problem_(p),
        sizes_(s),
        gradient_(s, scratch),
        forward_(s, scratch),
        projection_(p, s, scratch),
        transposed_(scratch.floats(s.panels(s.dv))),
        u_(scratch.floats(kTile * s.ldf)),
        phi_(scratch.floats(kTile * s.ldf)),
        slope_(scratch.floats(kTile * s.ldf)),
        eps_slope_(scratch.floats(kTile * s.ldf)),
        x_(scratch.floats(kTile * s.dp)),
        dx_(scratch.floats(kTile * s.dp)),
        v_(scratch.floats(kTile * s.dvp)),
        dv_(scratch.floats(kTile * s.dvp)),
        token_(scratch.floats(kTile)) {}

  static std::size_t bytes(const Sizes& s) {
    const auto floats = 2 * State::floats(s) + Projection::floats(s) + s.panels(s.dv) +
                        kTile * (4 * s.ldf + 2 * s.dp + 2 * s.dvp + 1) + 11 * kLine;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  /// (dS, dz), in the scales of the forward state.
  State& state() { return gradient_; }

  void load_forward(const StateView& state, std::int64_t index) {
    forward_.load(sizes_, state, index);
  }

  /// Gradients of the queries [begin, end) of one head; adds to (dS, dz).
  void queries(std::int64_t head, Span span, std::int64_t begin, std::int64_t end,
               const BackwardInputs& in, const TokenView& dq) {
    const auto& s = sizes_;
    projection_.pack_queries(head);
    transpose_panels(s, forward_.sum, s.dv, s.dvp, transposed_);
    zero(token_, kTile);
    for (; begin < end; begin += kTile) {
      const auto tokens = least(kTile, end - begin);
      const auto first = span.begin + begin;
      load_tokens(problem_.q, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, x_);
      load_tokens(in.grad_out, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, v_);
      projection_.token_major(x_, tokens, token_, u_, eps_slope_);
      const auto row_index = (span.batch * problem_.heads + head) * problem_.query_length + first;
      float along[kTile];
      gemm<Plus::kNothing>(tokens, s.mp, s.dv, {v_, s.dvp, 1}, Right::panels(transposed_, s.dv),
                           slope_, s.ldf);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const RowInverse row(problem_.map, in.row_sum[row_index + t],
                             in.row_log2_scale[row_index + t]);
        const RowGradient gradient = query_row(t, row);
        along[t] = gradient.along * gradient.inverse;
        divide_gradient(s, v_ + t * s.dvp, gradient.inverse);
      }
      projection_.pull_back({slope_, s.ldf, 1}, tokens, dx_);
      store_tokens(dq, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, dx_);
      gemm<Plus::kSelf>(s.mp, s.dvp, tokens, {phi_, 1, s.ldf}, Right::rows(v_, s.dvp),
                        gradient_.sum, s.dvp);
      for (std::int64_t n = 0; n < s.mp; n += kLanes) {
        Vec sum{};
        for (std::int64_t t = 0; t < tokens; ++t) {
          sum += splat(along[t]) * load(phi_ + t * s.ldf + n);
        }
        store(gradient_.normalizer + n, load(gradient_.normalizer + n) - sum);
      }
    }
  }

  /// Gradients of the keys and values [begin, end) of one state head, given (dS, dz).
  void keys(std::int64_t head, Span span, std::int64_t begin, std::int64_t end,
            const BackwardOutputs& out) {
    const auto& s = sizes_;
    projection_.pack_keys(head);
    transpose_panels(s, gradient_.sum, s.dv, s.dvp, transposed_);
    Keys keys{x_, v_, token_, false, {}};
    float zeros[kTile] = {};
    for (; begin < end; begin += kTile) {
      const auto tokens = least(kTile, end - begin);
      const auto first = span.begin + begin;
      load_keys(problem_, s, head, span, begin, tokens, keys);
      projection_.token_major(x_, tokens, token_, u_, eps_slope_);
      gemm<Plus::kOffsets>(tokens, s.mp, s.dv, {v_, s.dvp, 1}, Right::panels(transposed_, s.dv),
                           slope_, s.ldf, {zeros, gradient_.normalizer});
      float token_gradient[kTile];
      for (std::int64_t t = 0; t < tokens; ++t) token_gradient[t] = key_row(keys, t);
      gemm<Plus::kNothing>(tokens, s.dvp, s.mp, {phi_, s.ldf, 1}, Right::rows(gradient_.sum, s.dvp),
                           dv_, s.dvp);
      store_tokens(out.v, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, dv_);
      projection_.pull_back({slope_, s.ldf, 1}, tokens, dx_);
      if (problem_.norm_term) subtract_norm_terms(tokens, token_gradient);
      store_tokens(out.k, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, dx_);
    }
  }

 private:
  struct RowGradient {
    float along, inverse;
  };

  // phi_: p; slope_: from g . S to the gradient for the row's u. The denominator is the sum of
  // these same weights, whatever kernel the forward pass was: rows sum to 1.
  RowGradient query_row(std::int64_t t, RowInverse row) {
    const auto& s = sizes_;
    float* phi = phi_ + t * s.ldf;
    float* slope = slope_ + t * s.ldf;
    const float* u = u_ + t * s.ldf;
    const bool exponential = problem_.map == Map::kExponential;
    if (!exponential) map_values(problem_.map, phi, u, projection_.eps(), 1, s.mp);
    Vec sum{}, denominator{};
    const Vec shift = splat(row.shift);
    for (std::int64_t n = 0; n < s.mp; n += kLanes) {
      const Vec p =
          exponential ? exp2(load(u + n) + (load(forward_.scale + n) - shift)) : load(phi + n);
      if (exponential) store(phi + n, p);
      sum += p * load(slope + n);
      denominator += p * load(forward_.normalizer + n);
    }
    const float total = sum_lanes(denominator);
    const float inverse = row.inverse == 0 || total == 0 ? 0 : 1 / total;
    const float along = sum_lanes(sum) * inverse;
    const Vec along_lanes = splat(along), inverse_lanes = splat(inverse);
    for (std::int64_t n = 0; n < s.mp; n += kLanes) {
      const Vec difference = load(slope + n) - along_lanes * load(forward_.normalizer + n);
      const Vec g = difference * inverse_lanes;
      store(slope + n, exponential ? g * load(phi + n) : g);
    }
    if (!exponential) multiply_slopes(problem_.map, slope, u, s.mp);
    if (projection_.log_sum().active()) multiply(slope, eps_slope_ + t * s.ldf, s.mp);
    return {along, inverse};
  }

  // phi_: the key's features; slope_: from v . dS + dz to the gradient for u. Returns its sum.
  float key_row(const Keys& keys, std::int64_t t) {
    const auto& s = sizes_;
    float* phi = phi_ + t * s.ldf;
    float* slope = slope_ + t * s.ldf;
    const float* u = u_ + t * s.ldf;
    if (keys.masked && !keys.live[t]) {
      zero(phi, s.mp);
      zero(slope, s.mp);
      return 0;
    }
    if (problem_.map != Map::kExponential) {
      map_values(problem_.map, phi, u, projection_.eps(), 1, s.mp);
      multiply_slopes(problem_.map, slope, u, s.mp);
      return 0;
    }
    Vec sum{};
    for (std::int64_t n = 0; n < s.mp; n += kLanes) {
      const Vec p = exp2(load(u + n) - load(forward_.scale + n));
      const Vec g = p * load(slope + n);
      store(phi + n, p);
      store(slope + n, g);
      sum += g;
    }
    if (projection_.log_sum().active()) multiply(slope, eps_slope_ + t * s.ldf, s.mp);
    return sum_lanes(sum);
  }

  // log phi holds -|y|^2 / 2 = -scale |k|^2 / 2.
  void subtract_norm_terms(std::int64_t tokens, const float* token_gradient) {
    const auto dp = sizes_.dp;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Vec factor = splat(static_cast<float>(problem_.scale) * token_gradient[t]);
      for (std::int64_t i = 0; i < dp; i += kLanes) {
        store(dx_ + t * dp + i, load(dx_ + t * dp + i) - factor * load(x_ + t * dp + i));
      }
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  State gradient_, forward_;
  Projection projection_;
  float *transposed_, *u_, *phi_, *slope_, *eps_slope_, *x_, *dx_, *v_, *dv_, *token_;
};

/// x 2^n in two steps, each with a finite factor: 0 stays 0.
inline float scale_pow2(float x, float n) {
  const float bounded = most(-252.0F, least(252.0F, n));
  const float half = __builtin_truncf(bounded * 0.5F);
  return x * exp2_integer(half) * exp2_integer(bounded - half);
}

/// The gradient for the initial state's tensors, from that for its true values,
/// gradient 2^scale: times 2^(initial scale). A feature no key ever reached hands `passed` through.
inline void store_initial_gradient(const FavorProblem& p, const Sizes& s, const State& gradient,
                                   const BackwardInputs& in, const BackwardOutputs& out,
                                   std::int64_t index) {
  if (out.state.normalizer == nullptr) return;
  for (std::int64_t r = 0; r < s.m; ++r) {
    const auto at = index * s.m + r;
    const bool untouched = static_cast<float>(p.initial.log2_scale[at]) <= kReachedScale;
    const bool through = untouched && static_cast<float>(in.state.log2_scale[at]) <= kReachedScale;
    const float shift =
        untouched ? kEmptyScale : gradient.scale[r] + static_cast<float>(p.initial.log2_scale[at]);
    const auto pass = [&](const float* passed, std::int64_t i, float own) {
      if (through) return passed == nullptr ? 0.0F : passed[i];
      return untouched ? 0.0F : scale_pow2(own, shift);
    };
    out.state.normalizer[at] = pass(in.grad_state.normalizer, at, gradient.normalizer[r]);
    for (std::int64_t e = 0; e < s.dv; ++e) {
      out.state.kv[at * s.dv + e] =
          pass(in.grad_state.kv, at * s.dv + e, gradient.sum[r * s.dvp + e]);
    }
  }
}

inline bool bidirectional_backward(const FavorProblem& p, const BackwardInputs& in,
                                   const BackwardOutputs& out, const Executor& executor) {
  const Sizes s(p);
  const int tasks = executor.threads;
  const auto group = p.heads / p.state_heads;
  const Items items{p.state_heads, p.sequences};
  // The queries of a state head, one query head after the other, each in whole tiles.
  const auto padded = [&](std::int64_t n) { return round_up(query_span(p, n).length, kTile); };
  const auto query_length = [&](std::int64_t n) { return group * padded(n); };
  sum_pieces<Backward>(p, s, executor, items, query_length, in.grad_state, out.sums,
                       [&](Backward& backward, std::int64_t n, const Piece& piece) {
                         const auto head = items.head(piece.item);
                         const Span span = query_span(p, n);
                         backward.load_forward(in.state, state_index(p, n, head));
                         for (auto at = piece.begin; at < piece.end;) {
                           const auto g = at / padded(n);
                           const auto start = g * padded(n);
                           const auto end = least(piece.end, start + padded(n));
                           backward.queries(head * group + g, span, at - start,
                                            least(end - start, span.length), in, out.q);
                           at = end;
                         }
                       });

  const auto key_length = [&](std::int64_t n) { return key_span(p, n).length; };
  parallel(executor, tasks, [&](int task) {
    Backward backward(p, s, Scratch(thread_workspace(Backward::bytes(s))));
    for_each_piece(items, kTile, task, tasks, key_length, [&](const Piece& piece) {
      const auto n = items.sequence(piece.item);
      const auto head = items.head(piece.item);
      const auto index = state_index(p, n, head);
      backward.state().load(s, out.sums, index);
      backward.load_forward(in.state, index);
      backward.keys(head, key_span(p, n), piece.begin, piece.end, out);
      if (piece.begin != 0) return;
      // True values are those kept times 2^-c.
      for (std::int64_t r = 0; r < s.m; ++r) {
        backward.state().scale[r] = -static_cast<float>(in.state.log2_scale[index * s.m + r]);
      }
      store_initial_gradient(p, s, backward.state(), in, out, index);
    });
  });
  return true;
}

}  // namespace performer::kernels::PERFORMER_ISA
