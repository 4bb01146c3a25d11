#pragma once

#include "performer/kernels/cpu/backward.h"
#include "performer/kernels/cpu/causal_forward.h"

// The gradient of causal FAVOR+: a forward walk over chunks for q, with the states S recomputed,
// and a backward walk for k and v, with dS = sum over later rows of p g (backward.h). Everything is
// feature-major [mp, kChunk]. In-chunk pairs are formed relative to the same scales as the walk's
// sums: those of S forwards; those of dS, which keys absorb, backwards. p_ir phi_jr <= den_i for
// j <= i, so that only pairs the mask removes can be large; beyond the headroom the pass gives up.
namespace performer::kernels::PERFORMER_ISA {

class CausalBackward {
 public:
  CausalBackward(const FavorProblem& p, const Sizes& s, Scratch scratch, float* row_room)
      : problem_(p),
        sizes_(s),
        key_projection_(p, s, scratch),
        query_projection_(p, s, scratch),
        keys_(p, s, key_projection_, scratch),
        state_(s, scratch),
        u_(scratch.floats(s.mp * kChunk)),
        p_(scratch.floats(s.mp * kChunk)),
        slope_(scratch.floats(s.mp * kChunk)),
        eps_slope_(scratch.floats(s.mp * kChunk)),
        key_eps_slope_(scratch.floats(s.mp * kChunk)),
        key_u_(scratch.floats(s.mp * kChunk)),
        key_phi_(scratch.floats(s.mp * kChunk)),
        q_(scratch.floats(kChunk * s.dp)),
        q_t_(scratch.floats(s.dp * kChunk)),
        g_(scratch.floats(kChunk * s.dvp)),
        g_t_(scratch.floats(s.dvp * kChunk)),
        v_t_(scratch.floats(s.dvp * kChunk)),
        weights_(scratch.floats(kChunk * kChunk)),
        products_(scratch.floats(kChunk * kChunk)),
        dx_(scratch.floats(kChunk * s.dp)),
        dv_(scratch.floats(kChunk * s.dvp)),
        inverse_(scratch.floats(kChunk)),
        shift_(scratch.floats(kChunk)),
        along_(scratch.floats(kChunk)),
        zeros_(scratch.floats(kChunk)),
        row_room_(row_room) {
    zero(zeros_, kChunk);
  }
  CausalBackward(const CausalBackward&) = delete;  // its parts refer to each other
  CausalBackward& operator=(const CausalBackward&) = delete;

  static std::size_t bytes(const Sizes& s) {
    const auto floats = ChunkKeys::floats(s) + 2 * Projection::floats(s) + State::floats(s) +
                        kChunk * (7 * s.mp + 3 * s.dp + 4 * s.dvp + 2 * kChunk + 4) + 26 * kLine;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  /// `along` and the inverse denominator of a query row, which wait in the gradient of its key.
  static constexpr std::int64_t kRowBytes = 8;
  /// Whether a key row of the gradient has room for those of its queries.
  static bool fits_key_rows(const FavorProblem& p, const TokenView& dk) {
    const std::int64_t size = p.dtype == Dtype::kFloat ? 4 : 2;
    return dk.element == 1 && p.dim * size >= p.heads / p.state_heads * kRowBytes;
  }

  State& state() { return state_; }

  /// The head whose keys follow.
  void pack_keys(std::int64_t state_head) { key_projection_.pack_keys(state_head); }

  /// Gradients of the queries of chunks [begin, end), from the state before them, which becomes
  /// that after them. False where the keys outgrow the headroom.
  bool walk_queries(std::int64_t head, Span span, std::int64_t begin, std::int64_t end,
                    const BackwardInputs& in, const BackwardOutputs& out) {
    for (; begin < end; begin += kChunk) {
      const auto tokens = least(kChunk, end - begin);
      keys_.take(head, span, begin, tokens);
      keys_.make_features(state_);
      if (keys_.bad() < tokens) return false;
      for (std::int64_t g = 0; g < group(); ++g) {
        query_gradient(head, g, span, begin, tokens, in, out);
      }
      keys_.add_to(state_, u_);
    }
    return true;
  }

  /// dS and dz of the rows of chunks [begin, end), added to the state. walk_queries has been there.
  void add_rows(std::int64_t head, Span span, std::int64_t begin, std::int64_t end,
                const BackwardInputs& in, const BackwardOutputs& out) {
    for (; begin < end; begin += kChunk) {
      const auto tokens = least(kChunk, end - begin);
      for (std::int64_t g = 0; g < group(); ++g) {
        load_rows(head * group() + g, span, begin, tokens, in);
        if (problem_.map == Map::kExponential) lift_query_scales();
        load_waiting(head, g, span, begin, tokens, out);
        query_features(state_.scale, -1);
        add_row_sums(tokens);
      }
    }
  }

  /// Gradients of the keys of chunks [begin, end), last to first, from the dS of the rows after
  /// them, which becomes that of all rows from `begin` on.
  bool walk_keys(std::int64_t head, Span span, std::int64_t begin, std::int64_t end,
                 const BackwardInputs& in, const BackwardOutputs& out) {
    for (auto chunk = (end - begin + kChunk - 1) / kChunk; chunk-- > 0;) {
      const auto at = begin + chunk * kChunk;
      if (!key_gradient(head, span, at, least(kChunk, end - at), in, out)) return false;
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
  std::int64_t group() const { return problem_.heads / problem_.state_heads; }

  // Rows of one query head: q, g and their denominators.
  void load_rows(std::int64_t head, Span span, std::int64_t begin, std::int64_t tokens,
                 const BackwardInputs& in) {
    const auto& s = sizes_;
    const auto first = span.begin + begin;
    query_projection_.pack_queries(head);
    load_tokens(problem_.q, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, q_);
    load_tokens(in.grad_out, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, g_);
    transpose_tokens(q_, tokens, s.dp, q_t_);
    query_projection_.feature_major(q_t_, zeros_, u_, eps_slope_);
    const auto row = (span.batch * problem_.heads + head) * problem_.query_length + first;
    for (std::int64_t i = 0; i < kChunk; ++i) {
      const float sum = i < tokens ? in.row_sum[row + i] : 0;
      const std::int32_t log2 = i < tokens ? in.row_log2_scale[row + i] : 0;
      const RowInverse inverse(problem_.map, sum, log2);
      inverse_[i] = inverse.inverse;
      shift_[i] = inverse.shift;
    }
  }

  // p_ = phi(q) 2^(sign scale - shift).
  void query_features(const float* scale, float sign) {
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const float* u = u_ + r * kChunk;
      float* p = p_ + r * kChunk;
      if (problem_.map != Map::kExponential) {
        map_values(problem_.map, p, u, query_projection_.eps() + r, 0, kChunk);
        continue;
      }
      const Vec c = splat(sign * scale[r]);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        store(p + i, exp2(load(u + i) + (c - load(shift_ + i))));
      }
    }
  }

  void query_gradient(std::int64_t state_head, std::int64_t g, Span span, std::int64_t begin,
                      std::int64_t tokens, const BackwardInputs& in, const BackwardOutputs& out) {
    const auto& s = sizes_;
    const auto head = state_head * group() + g;
    load_rows(head, span, begin, tokens, in);
    transpose_tokens(g_, tokens, s.dvp, g_t_);
    query_features(keys_.reference(), 1);
    // weights_ [j, i] = phi_j . p_i; products_ [j, i] = v_j . g_i; both 0 for j > i.
    for (std::int64_t j = 0; j < tokens; j += kBlockRows) {
      const auto rows = least<std::int64_t>(kBlockRows, tokens - j);
      const auto from = j / kLanes * kLanes;
      float* weights = weights_ + j * kChunk + from;
      float* products = products_ + j * kChunk + from;
      gemm<Plus::kNothing>(rows, kChunk - from, s.mp, {keys_.phi() + j, 1, kChunk},
                           Right::rows(p_ + from, kChunk), weights, kChunk);
      gemm<Plus::kNothing>(rows, kChunk - from, s.dv, {keys_.v() + j * s.dvp, s.dvp, 1},
                           Right::rows(g_t_ + from, kChunk), products, kChunk);
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      zero(weights_ + j * kChunk, j);
      zero(products_ + j * kChunk, j);
    }
    gemm<Plus::kNothing>(s.mp, kChunk, s.dv, {state_.sum, s.dvp, 1}, Right::rows(g_t_, kChunk),
                         slope_, kChunk);
    Vec along[kChunk / kLanes] = {}, sum[kChunk / kLanes] = {};
    for (std::int64_t r = 0; r < s.mp; ++r) {
      const Vec z = splat(state_.normalizer[r]);
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto at = r * kChunk + n * kLanes;
        along[n] += load(p_ + at) * load(slope_ + at);
        sum[n] += load(p_ + at) * z;
      }
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      for (int n = 0; n < kChunk / kLanes; ++n) sum[n] += load(weights_ + j * kChunk + n * kLanes);
    }
    // The sum of these same weights, whatever kernel the forward pass was: rows sum to 1.
    for (int n = 0; n < kChunk / kLanes; ++n) {
      const Vec present = load(inverse_ + n * kLanes);
      const Vec inverse = present == Vec{} || sum[n] == Vec{} ? Vec{} : splat(1) / sum[n];
      store(inverse_ + n * kLanes, inverse);
      along[n] *= inverse;
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const auto at = j * kChunk + n * kLanes;
        const Vec weight = load(weights_ + at) * load(inverse_ + n * kLanes);
        along[n] += weight * load(products_ + at);
      }
    }
    for (int n = 0; n < kChunk / kLanes; ++n) store(along_ + n * kLanes, along[n]);
    for (std::int64_t j = 0; j < tokens; ++j) {
      for (std::int64_t i = j; i < kChunk; ++i) products_[j * kChunk + i] -= along_[i];
    }
    gemm<Plus::kSelf>(s.mp, kChunk, tokens, {keys_.phi(), kChunk, 1},
                      Right::rows(products_, kChunk), slope_, kChunk);
    for (std::int64_t r = 0; r < s.mp; ++r) {
      const Vec z = splat(state_.normalizer[r]);
      float* slope = slope_ + r * kChunk;
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        const Vec difference = load(slope + i) - load(along_ + i) * z;
        const Vec gradient = difference * load(inverse_ + i);
        store(slope + i,
              problem_.map == Map::kExponential ? gradient * load(p_ + r * kChunk + i) : gradient);
      }
      if (problem_.map != Map::kExponential) {
        multiply_slopes(problem_.map, slope, u_ + r * kChunk, kChunk);
      } else if (query_projection_.log_sum().active()) {
        multiply(slope, eps_slope_ + r * kChunk, kChunk);
      }
    }
    query_projection_.pull_back({slope_, 1, kChunk}, tokens, dx_);
    store_tokens(out.q, problem_.dtype, span.batch, head, span.begin + begin, tokens, s.d, s.dp,
                 dx_);
    for (std::int64_t i = 0; i < tokens; ++i) {
      auto* waiting = static_cast<char*>(row_of(out.k, state_head, g, span, begin + i));
      __builtin_memcpy(waiting, along_ + i, sizeof(float));
      __builtin_memcpy(waiting + sizeof(float), inverse_ + i, sizeof(float));
    }
  }

  // Where what is known of a row waits for the walk over keys: in the key's gradient, not yet
  // written.
  void* row_of(const TokenView& dk, std::int64_t state_head, std::int64_t g, Span span,
               std::int64_t token) {
    if (row_room_ != nullptr) return row_room_ + 2 * (g * span.length + token);
    const std::int64_t size = problem_.dtype == Dtype::kFloat ? 4 : 2;
    const auto row = span.batch * dk.batch + state_head * dk.head + (span.begin + token) * dk.token;
    return static_cast<char*>(dk.data) + row * size + g * kRowBytes;
  }

  // Lifts the scales of dS to those of the rows in u_.
  void lift_query_scales() {
    for (std::int64_t r = 0; r < sizes_.m; ++r) {
      Vec top = splat(-__builtin_inff());
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        top = max(load(u_ + r * kChunk + i) - load(shift_ + i), top);
      }
      const float log2 = max_lanes(top);
      if (log2 <= kReachedScale) continue;  // rows without keys
      const float needed = round_up_log2(log2);
      if (needed > state_.scale[r]) state_.lift(sizes_, r, needed);
    }
  }

  // key_phi_ = phi(k) 2^scale; false where one outgrows the headroom.
  bool key_features(std::int64_t head, Span span, std::int64_t begin, std::int64_t tokens) {
    const auto& s = sizes_;
    keys_.take(head, span, begin, tokens);
    keys_.project(key_u_, key_eps_slope_);
    if (problem_.map != Map::kExponential) {
      for (std::int64_t r = 0; r < s.mp; ++r) {
        float* phi = key_phi_ + r * kChunk;
        map_values(problem_.map, phi, key_u_ + r * kChunk, keys_.projection().eps() + r, 0, kChunk);
        for (std::int64_t j = 0; j < kChunk; ++j) phi[j] = keys_.live(j) ? phi[j] : 0;
      }
      return true;
    }
    Vec top = splat(-__builtin_inff());
    for (std::int64_t r = 0; r < s.mp; ++r) {
      const Vec e = splat(state_.scale[r]);
#pragma GCC unroll 16
      for (std::int64_t j = 0; j < kChunk; j += kLanes) {
        const Vec l = load(key_u_ + r * kChunk + j) + e;
        top = max(l, top);
        store(key_phi_ + r * kChunk + j, exp2(l));
      }
    }
    return !(max_lanes(top) > kChunkHeadroom);
  }

  bool key_gradient(std::int64_t head, Span span, std::int64_t begin, std::int64_t tokens,
                    const BackwardInputs& in, const BackwardOutputs& out) {
    const auto& s = sizes_;
    const bool exponential = problem_.map == Map::kExponential;
    for (std::int64_t g = 0; g < group() && exponential; ++g) {
      load_rows(head * group() + g, span, begin, tokens, in);
      lift_query_scales();
    }
    if (!key_features(head, span, begin, tokens)) return false;
    transpose_tokens(keys_.v(), tokens, s.dvp, v_t_);
    gemm<Plus::kOffsets>(s.mp, kChunk, s.dv, {state_.sum, s.dvp, 1}, Right::rows(v_t_, kChunk),
                         slope_, kChunk, {state_.normalizer, zeros_});
    gemm<Plus::kNothing>(tokens, s.dvp, s.mp, {key_phi_, 1, kChunk}, Right::rows(state_.sum, s.dvp),
                         dv_, s.dvp);
    for (std::int64_t g = 0; g < group(); ++g) {
      if (group() > 1 || !exponential) load_rows(head * group() + g, span, begin, tokens, in);
      load_waiting(head, g, span, begin, tokens, out);
      add_row_gradients(tokens);
    }
    finish_keys(head, span, begin, tokens, out);
    return true;
  }

  void load_waiting(std::int64_t head, std::int64_t g, Span span, std::int64_t begin,
                    std::int64_t tokens, const BackwardOutputs& out) {
    zero(along_, kChunk);
    for (std::int64_t i = 0; i < tokens; ++i) {
      const auto* waiting = static_cast<const char*>(row_of(out.k, head, g, span, begin + i));
      __builtin_memcpy(along_ + i, waiting, sizeof(float));
      __builtin_memcpy(inverse_ + i, waiting + sizeof(float), sizeof(float));
    }
  }

  // The rows of one query head: their pairs within the chunk, then their part of dS.
  void add_row_gradients(std::int64_t tokens) {
    const auto& s = sizes_;
    query_features(state_.scale, -1);
    // weights_ [i, j] = p_i . phi_j / den_i; products_ [i, j] = (g_i . v_j - along_i) / den_i; both
    // 0 for j > i.
    for (std::int64_t i = 0; i < tokens; i += kBlockRows) {
      const auto rows = least<std::int64_t>(kBlockRows, tokens - i);
      const auto columns = round_up(i + rows, kLanes);
      gemm<Plus::kNothing>(rows, columns, s.mp, {p_ + i, 1, kChunk}, Right::rows(key_phi_, kChunk),
                           weights_ + i * kChunk, kChunk);
      gemm<Plus::kNothing>(rows, columns, s.dv, {g_ + i * s.dvp, s.dvp, 1},
                           Right::rows(v_t_, kChunk), products_ + i * kChunk, kChunk);
    }
    for (std::int64_t i = 0; i < tokens; ++i) {
      float* weights = weights_ + i * kChunk;
      float* products = products_ + i * kChunk;
      for (std::int64_t j = 0; j <= i; ++j) {
        weights[j] *= inverse_[i];
        products[j] = (products[j] - along_[i]) * inverse_[i];
      }
      zero(weights + i + 1, kChunk - i - 1);
      zero(products + i + 1, kChunk - i - 1);
    }
    gemm<Plus::kSelf>(s.mp, kChunk, tokens, {p_, kChunk, 1}, Right::rows(products_, kChunk), slope_,
                      kChunk);
    gemm<Plus::kSelf>(tokens, s.dvp, tokens, {weights_, 1, kChunk}, Right::rows(g_, s.dvp), dv_,
                      s.dvp);
    add_row_sums(tokens);
  }

  // dS += p g / den, dz -= p along / den.
  void add_row_sums(std::int64_t tokens) {
    const auto& s = sizes_;
    for (std::int64_t i = 0; i < tokens; ++i) {
      divide_gradient(s, g_ + i * s.dvp, inverse_[i]);
      along_[i] *= inverse_[i];
    }
    gemm<Plus::kSelf>(s.mp, s.dvp, tokens, {p_, kChunk, 1}, Right::rows(g_, s.dvp), state_.sum,
                      s.dvp);
    for (std::int64_t r = 0; r < s.mp; ++r) {
      Vec sum{};
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        sum += load(p_ + r * kChunk + i) * load(along_ + i);
      }
      state_.normalizer[r] -= sum_lanes(sum);
    }
  }

  void finish_keys(std::int64_t head, Span span, std::int64_t begin, std::int64_t tokens,
                   const BackwardOutputs& out) {
    const auto& s = sizes_;
    Vec total[kChunk / kLanes] = {};
    for (std::int64_t r = 0; r < s.mp; ++r) {
      float* slope = slope_ + r * kChunk;
      if (problem_.map != Map::kExponential) {
        multiply_slopes(problem_.map, slope, key_u_ + r * kChunk, kChunk);
        for (std::int64_t j = 0; j < kChunk; ++j) slope[j] = keys_.live(j) ? slope[j] : 0;
        continue;
      }
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const Vec g = load(slope + n * kLanes) * load(key_phi_ + r * kChunk + n * kLanes);
        store(slope + n * kLanes, g);
        total[n] += g;
      }
      if (keys_.projection().log_sum().active()) {
        multiply(slope, key_eps_slope_ + r * kChunk, kChunk);
      }
    }
    keys_.projection().pull_back({slope_, 1, kChunk}, tokens, dx_);
    if (problem_.norm_term) {
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
    const auto first = span.begin + begin;
    store_tokens(out.k, problem_.dtype, span.batch, head, first, tokens, s.d, s.dp, dx_);
    store_tokens(out.v, problem_.dtype, span.batch, head, first, tokens, s.dv, s.dvp, dv_);
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection key_projection_, query_projection_;
  ChunkKeys keys_;
  State state_;  // S forwards, dS backwards
  float *u_, *p_, *slope_, *eps_slope_, *key_eps_slope_, *key_u_, *key_phi_, *q_, *q_t_, *g_, *g_t_;
  float *v_t_, *weights_, *products_, *dx_, *dv_, *inverse_, *shift_, *along_, *zeros_;
  float* row_room_;  // null: rows wait in the gradient of k
};

}  // namespace performer::kernels::PERFORMER_ISA
