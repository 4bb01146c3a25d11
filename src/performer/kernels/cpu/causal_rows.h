#pragma once

#include "performer/kernels/cpu/backward.h"
#include "performer/kernels/cpu/causal_forward.h"

// The queries of one causal chunk in the backward pass, feature-major [mp, kChunk].
namespace performer::kernels::PERFORMER_ISA {

/// The tokens [begin, begin + tokens) of a sequence, and the head of their keys.
struct ChunkAt {
  std::int64_t head;
  Span span;
  std::int64_t begin, tokens;
};

/// The rows of one query head: q, g = dout, features, denominators, and the product of g with the
/// row's output, `along`. Row i's weights are p_ir = phi_r(q_i) 2^(scale_r) / den_i.
class ChunkRows {
 public:
  /// `room`: where a row's numbers wait for the walk over keys; null: in the gradient of its key.
  ChunkRows(const FavorProblem& p, const Sizes& s, Scratch& scratch, float* room)
      : problem_(p),
        sizes_(s),
        projection_(p, s, scratch),
        u_(scratch.floats(s.mp * kChunk)),
        p_(scratch.floats(s.mp * kChunk)),
        eps_slope_(scratch.floats(s.mp * kChunk)),
        q_(scratch.floats(kChunk * s.dp)),
        q_t_(scratch.floats(s.dp * kChunk)),
        g_(scratch.floats(kChunk * s.dvp)),
        inverse_(scratch.floats(kChunk)),
        shift_(scratch.floats(kChunk)),
        along_(scratch.floats(kChunk)),
        zeros_(scratch.floats(kChunk)),
        room_(room) {
    zero(zeros_, kChunk);
  }

  static std::int64_t floats(const Sizes& s) {
    return Projection::floats(s) + kChunk * (3 * s.mp + 2 * s.dp + s.dvp + 4) + 10 * kLine;
  }

  /// `along` and the inverse denominator of a query row, which wait in the gradient of its key.
  static constexpr std::int64_t kRowBytes = 8;
  /// Whether a key row of the gradient has room for those of its queries.
  static bool fit_key_rows(const FavorProblem& p, const TokenView& dk) {
    const std::int64_t size = p.dtype == Dtype::kFloat ? 4 : 2;
    return dk.element == 1 && p.dim * size >= p.heads / p.state_heads * kRowBytes;
  }

  /// Query heads of a key head.
  std::int64_t group() const { return problem_.heads / problem_.state_heads; }

  /// Those of query head number g of the chunk's key head.
  void take(const ChunkAt& at, std::int64_t g, const BackwardInputs& in) {
    const auto& s = sizes_;
    const auto head = at.head * group() + g;
    const auto first = at.span.begin + at.begin;
    projection_.pack_queries(head);
    load_tokens(problem_.q, problem_.dtype, at.span.batch, head, first, at.tokens, s.d, s.dp, q_);
    load_tokens(in.grad_out, problem_.dtype, at.span.batch, head, first, at.tokens, s.dv, s.dvp,
                g_);
    transpose_tokens(q_, at.tokens, s.dp, q_t_);
    projection_.feature_major(q_t_, zeros_, u_, eps_slope_);
    const auto row = (at.span.batch * problem_.heads + head) * problem_.query_length + first;
    for (std::int64_t i = 0; i < kChunk; ++i) {
      const float sum = i < at.tokens ? in.row_sum[row + i] : 0;
      const std::int32_t log2 = i < at.tokens ? in.row_log2_scale[row + i] : 0;
      const RowInverse inverse(problem_.map, sum, log2);
      inverse_[i] = inverse.inverse;
      shift_[i] = inverse.shift;
    }
  }

  /// p = phi(q) 2^(sign scale - shift).
  void make_features(const float* scale, float sign) {
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const float* u = u_ + r * kChunk;
      float* p = p_ + r * kChunk;
      if (problem_.map != Map::kExponential) {
        map_values(problem_.map, p, u, projection_.eps() + r, 0, kChunk);
        continue;
      }
      const Vec c = splat(sign * scale[r]);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        store(p + i, exp2(load(u + i) + (c - load(shift_ + i))));
      }
    }
  }

  /// Lifts the scales of dS to those of the rows.
  void lift_scales(State& state) const {
    for (std::int64_t r = 0; r < sizes_.m; ++r) {
      Vec top = splat(-__builtin_inff());
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        top = max(load(u_ + r * kChunk + i) - load(shift_ + i), top);
      }
      const float log2 = max_lanes(top);
      if (log2 <= kReachedScale) continue;  // rows without keys
      const float needed = round_up_log2(log2);
      if (needed > state.scale[r]) state.lift(sizes_, r, needed);
    }
  }

  /// `along` and the inverse denominators wait for the walk over keys, and come back.
  void keep(const ChunkAt& at, std::int64_t g, const TokenView& dk) const {
    for (std::int64_t i = 0; i < at.tokens; ++i) {
      auto* waiting = static_cast<char*>(room_of(at, g, i, dk));
      __builtin_memcpy(waiting, along_ + i, sizeof(float));
      __builtin_memcpy(waiting + sizeof(float), inverse_ + i, sizeof(float));
    }
  }
  void take_back(const ChunkAt& at, std::int64_t g, const TokenView& dk) {
    zero(along_, kChunk);
    for (std::int64_t i = 0; i < at.tokens; ++i) {
      const auto* waiting = static_cast<const char*>(room_of(at, g, i, dk));
      __builtin_memcpy(along_ + i, waiting, sizeof(float));
      __builtin_memcpy(inverse_ + i, waiting + sizeof(float), sizeof(float));
    }
  }

  /// dS += p g / den, dz -= p along / den. g and `along` are divided on the way.
  void add_to(State& state, std::int64_t tokens) {
    const auto& s = sizes_;
    for (std::int64_t i = 0; i < tokens; ++i) {
      divide_gradient(s, g_ + i * s.dvp, inverse_[i]);
      along_[i] *= inverse_[i];
    }
    gemm<Plus::kSelf>(s.mp, s.dvp, tokens, {p_, kChunk, 1}, Right::rows(g_, s.dvp), state.sum,
                      s.dvp);
    for (std::int64_t r = 0; r < s.mp; ++r) {
      Vec sum{};
      for (std::int64_t i = 0; i < kChunk; i += kLanes) {
        sum += load(p_ + r * kChunk + i) * load(along_ + i);
      }
      state.normalizer[r] -= sum_lanes(sum);
    }
  }

  /// The gradient of u for that of the features, in place: [mp, kChunk].
  void apply_slopes(float* slope, std::int64_t r) const {
    if (problem_.map != Map::kExponential) {
      multiply_slopes(problem_.map, slope, u_ + r * kChunk, kChunk);
    } else if (projection_.log_sum().active()) {
      multiply(slope, eps_slope_ + r * kChunk, kChunk);
    }
  }

  const Projection& projection() const { return projection_; }
  const float* p() const { return p_; }
  const float* g() const { return g_; }
  float* inverse() { return inverse_; }
  float* along() { return along_; }
  const float* zeros() const { return zeros_; }

 private:
  void* room_of(const ChunkAt& at, std::int64_t g, std::int64_t i, const TokenView& dk) const {
    const auto token = at.begin + i;
    if (room_ != nullptr) return room_ + 2 * (g * at.span.length + token);
    const std::int64_t size = problem_.dtype == Dtype::kFloat ? 4 : 2;
    const auto row =
        at.span.batch * dk.batch + at.head * dk.head + (at.span.begin + token) * dk.token;
    return static_cast<char*>(dk.data) + row * size + g * kRowBytes;
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  Projection projection_;
  float *u_, *p_, *eps_slope_, *q_, *q_t_, *g_, *inverse_, *shift_, *along_, *zeros_;
  float* room_;
};

}  // namespace performer::kernels::PERFORMER_ISA
