#pragma once

#include "performer/kernels/cpu/gemm.h"
#include "performer/kernels/cpu/layout.h"

// u = W x of one head, in the two layouts the passes need, with the constants folded in:
// exponential maps work in units of log2, l = log2(e) (sqrt(scale) W x + bias + token term).
namespace performer::kernels::PERFORMER_ISA {

inline float sqrt_scale(const FavorProblem& p) {
  return static_cast<float>(__builtin_sqrt(p.scale));
}

class Projection {
 public:
  Projection(const FavorProblem& p, const Sizes& s, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        log_sum_(p),
        rows_(scratch.floats(s.mp * s.dp)),
        panels_(scratch.floats(s.panels(s.d))),
        bias_(scratch.floats(s.mp)),
        eps_(scratch.floats(s.mp)) {}

  static std::int64_t floats(const Sizes& s) {
    return s.mp * s.dp + s.panels(s.d) + 2 * s.mp + 4 * kLine;
  }

  /// Takes the parameters of head h of `heads`.
  void pack(const Parameter& w, const Parameter& bias, std::int64_t h, std::int64_t heads) {
    const auto w_head = w.data == nullptr ? 0 : head_of(h, heads, w.heads);
    const auto bias_head = bias.data == nullptr ? 0 : head_of(h, heads, bias.heads);
    if (w.data == w_ && bias.data == b_ && w_head == w_head_ && bias_head == bias_head_) return;
    w_ = w.data, b_ = bias.data, w_head_ = w_head, bias_head_ = bias_head;
    pack_bias(bias, bias_head);
    if (w.data != nullptr) pack_rows(w, w_head);
  }

  void pack_keys(std::int64_t state_head) {
    pack(problem_.w_key, problem_.bias_key, state_head, problem_.state_heads);
  }
  void pack_queries(std::int64_t head) {
    pack(problem_.w_query, problem_.bias_query, head, problem_.heads);
  }

  bool identity() const { return w_ == nullptr; }
  const float* bias() const { return bias_; }  // [mp]; exponential maps: -inf in the padding
  const float* eps() const { return eps_; }    // [mp]; f(0) + eps = 0 in the padding
  const float* rows() const { return rows_; }  // [mp, dp]
  const LogSum& log_sum() const { return log_sum_; }

  /// u [tokens, ldf] = x W^T + token_i + bias_r. x: [tokens, dp]. slopes: of log_sum, if active and
  /// asked for.
  void token_major(const float* x, std::int64_t tokens, const float* token, float* u,
                   float* slopes = nullptr) const {
    if (identity()) {
      const Vec factor = splat(identity_factor());
      for (std::int64_t t = 0; t < tokens; ++t) {
        const Vec add = splat(token[t]);
        for (std::int64_t i = 0; i < sizes_.dp; i += kLanes) {
          store(u + t * sizes_.ldf + i, load(x + t * sizes_.dp + i) * factor + add);
        }
      }
    } else {
      gemm<Plus::kOffsets>(tokens, sizes_.mp, sizes_.d, {x, sizes_.dp, 1},
                           Right::panels(panels_, sizes_.d), u, sizes_.ldf, {token, bias_});
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* row = u + t * sizes_.ldf;
      for (std::int64_t r = sizes_.m; r < sizes_.mp; ++r) row[r] = padding();
      add_eps(row, slopes == nullptr ? nullptr : slopes + t * sizes_.ldf, sizes_.mp);
    }
  }

  /// u [mp, kChunk] = W x^T + bias_r + token_j. x_t: [dp, kChunk], zeros beyond the last token.
  /// slopes as above.
  void feature_major(const float* x_t, const float* token, float* u,
                     float* slopes = nullptr) const {
    if (identity()) {
      const Vec factor = splat(identity_factor());
      for (std::int64_t i = 0; i < sizes_.mp * kChunk; i += kLanes) {
        store(u + i, load(x_t + i) * factor + load(token + i % kChunk));
      }
    } else {
      gemm<Plus::kOffsets>(sizes_.mp, kChunk, sizes_.d, {rows_, sizes_.dp, 1},
                           Right::rows(x_t, kChunk), u, kChunk, {bias_, token});
    }
    for (std::int64_t i = sizes_.m * kChunk; i < sizes_.mp * kChunk; ++i) u[i] = padding();
    add_eps(u, slopes, sizes_.mp * kChunk);
  }

  /// x [tokens, dp] = sqrt(scale) g W for the gradient g of natural log units. strides of g.
  void pull_back(Left g, std::int64_t tokens, float* x) const {
    if (identity()) {
      const float factor = sqrt_scale(problem_);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < sizes_.dp; ++i) {
          x[t * sizes_.dp + i] = g.data[t * g.row + i * g.k] * factor;
        }
      }
      return;
    }
    gemm<Plus::kNothing>(tokens, sizes_.dp, sizes_.mp, g, Right::rows(rows_, sizes_.dp), x,
                         sizes_.dp);
    if (problem_.map != Map::kExponential) return;
    const Vec ln2 = splat(0.693147180559945309F);
    for (std::int64_t i = 0; i < tokens * sizes_.dp; i += kLanes) store(x + i, load(x + i) * ln2);
  }

 private:
  void add_eps(float* l, float* slopes, std::int64_t n) const {
    if (!log_sum_.active()) return;
    if (slopes != nullptr) log_sum_.slopes(l, slopes, n);
    log_sum_.apply(l, n);
  }

  float identity_factor() const {
    return sqrt_scale(problem_) * (problem_.map == Map::kExponential ? kLog2E : 1.0F);
  }

  /// u of a feature that is not there, whatever its token: 0 times infinity is no 0.
  float padding() const { return problem_.map == Map::kExponential ? -__builtin_inff() : 0; }

  void pack_bias(const Parameter& bias, std::int64_t head) {
    const bool exponential = problem_.map == Map::kExponential;
    float at_zero[kLanes];
    store(at_zero, exponential ? Vec{} : map_value(problem_.map, Vec{}));
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const bool real = r < sizes_.m;
      const double b =
          real && bias.data != nullptr ? parameter_at(bias, head * sizes_.m + r) * kLog2EWide : 0;
      bias_[r] = static_cast<float>(b);
      if (!real && exponential) bias_[r] = -__builtin_inff();
      eps_[r] = real ? static_cast<float>(problem_.eps) : -at_zero[0];
    }
  }

  void pack_rows(const Parameter& w, std::int64_t head) {
    const auto half = problem_.mirrored ? sizes_.m / 2 : sizes_.m;
    const double factor =
        __builtin_sqrt(problem_.scale) * (problem_.map == Map::kExponential ? kLog2EWide : 1.0);
    for (std::int64_t i = 0; i < sizes_.mp * sizes_.dp; ++i) rows_[i] = 0;
    for (std::int64_t r = 0; r < sizes_.m; ++r) {
      const double signed_factor = r < half ? factor : -factor;
      const auto from = (head * half + (r < half ? r : r - half)) * sizes_.d;
      for (std::int64_t i = 0; i < sizes_.d; ++i) {
        rows_[r * sizes_.dp + i] = static_cast<float>(parameter_at(w, from + i) * signed_factor);
      }
    }
    for (std::int64_t n = 0; n < sizes_.mp; n += kPanel) {
      float* panel = panels_ + n * sizes_.d;
      const auto width = least<std::int64_t>(kPanel, sizes_.mp - n);
      for (std::int64_t r = 0; r < width; ++r) {
        for (std::int64_t i = 0; i < sizes_.d; ++i) {
          panel[i * kPanel + r] = rows_[(n + r) * sizes_.dp + i];
        }
      }
    }
  }

  static constexpr double kLog2EWide = 1.4426950408889634074;

  const FavorProblem& problem_;
  const Sizes& sizes_;
  LogSum log_sum_;
  float *rows_, *panels_, *bias_, *eps_;
  const void *w_ = this, *b_ = this;  // nothing packed yet
  std::int64_t w_head_ = -1, bias_head_ = -1;
};

}  // namespace performer::kernels::PERFORMER_ISA
