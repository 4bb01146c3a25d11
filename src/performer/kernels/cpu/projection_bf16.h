#pragma once

#include "performer/kernels/cpu/gemm_bf16.h"
#include "performer/kernels/cpu/layout.h"

namespace performer::kernels::PERFORMER_ISA {

/// W of one head as the sum of two bfloat16 matrices (W keeps 16 bits of precision; the exponent's
/// argument is never rounded to 8), constants folded in as in projection.h.
class PairProjection {
 public:
  PairProjection(const FavorProblem& p, const Sizes& s, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        log_sum_(p),
        bias_(scratch.floats(s.mp)),
        eps_(scratch.floats(s.mp)) {
    for (int part = 0; part < 2; ++part) {
      rows_[part] = reinterpret_cast<Pair*>(scratch.floats(s.mp * s.dp / 2));
      panels_[part] = reinterpret_cast<Pair*>(scratch.floats(round_up(s.mp, kPanel) * s.dp / 2));
    }
  }
  static std::int64_t floats(const Sizes& s) {
    return s.mp * s.dp + round_up(s.mp, kPanel) * s.dp + 2 * s.mp + 6 * kLine;
  }

  void pack(const Parameter& w, const Parameter& bias, std::int64_t h, std::int64_t heads) {
    const auto w_head = head_of(h, heads, w.heads);
    const auto bias_head = bias.data == nullptr ? 0 : head_of(h, heads, bias.heads);
    if (w.data == w_ && bias.data == b_ && w_head == w_head_ && bias_head == bias_head_) return;
    w_ = w.data, b_ = bias.data, w_head_ = w_head, bias_head_ = bias_head;
    pack_bias(bias, bias_head);
    pack_rows(w, w_head);
  }

  const float* bias() const { return bias_; }
  const float* eps() const { return eps_; }

  /// u [rows, tokens] = W x^T for the rows [first, first + rows). x_t: panels of [dp / 2, tokens].
  void feature_major(const Pair* x_t, std::int64_t tokens, std::int64_t first, std::int64_t rows,
                     float* u) const {
    const auto offset = first * sizes_.dp / 2;
    const PairPart parts[] = {{rows_[0] + offset, x_t}, {rows_[1] + offset, x_t}};
    gemm_pairs<false>(rows, tokens, sizes_.dp / 2, parts, 2, sizes_.dp / 2, u, tokens);
    for (auto r = most(first, sizes_.m); r < first + rows; ++r) {
      for (std::int64_t t = 0; t < tokens; ++t) u[(r - first) * tokens + t] = padding();
    }
    if (log_sum_.active()) log_sum_.apply(u, rows * tokens);
  }

  /// u [tokens, ldf] = x W^T. x: [tokens, dp / 2].
  void token_major(const Pair* x, std::int64_t tokens, float* u) const {
    const PairPart parts[] = {{x, panels_[0]}, {x, panels_[1]}};
    gemm_pairs<false>(tokens, sizes_.mp, sizes_.dp / 2, parts, 2, sizes_.dp / 2, u, sizes_.ldf);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (auto r = sizes_.m; r < sizes_.mp; ++r) u[t * sizes_.ldf + r] = padding();
      if (log_sum_.active()) log_sum_.apply(u + t * sizes_.ldf, sizes_.mp);
    }
  }

 private:
  float padding() const { return problem_.map == Map::kExponential ? -__builtin_inff() : 0; }

  void pack_bias(const Parameter& bias, std::int64_t head) {
    const bool exponential = problem_.map == Map::kExponential;
    float at_zero[kLanes];
    store(at_zero, exponential ? Vec{} : map_value(problem_.map, Vec{}));
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      const bool real = r < sizes_.m;
      const double b = real && bias.data != nullptr
                           ? parameter_at(bias, head * sizes_.m + r) * 1.4426950408889634074
                           : 0;
      bias_[r] = real || !exponential ? static_cast<float>(b) : -__builtin_inff();
      eps_[r] = real ? static_cast<float>(problem_.eps) : -at_zero[0];
    }
  }

  void pack_rows(const Parameter& w, std::int64_t head) {
    const auto& s = sizes_;
    const auto half = problem_.mirrored ? s.m / 2 : s.m;
    const double factor = __builtin_sqrt(problem_.scale) *
                          (problem_.map == Map::kExponential ? 1.4426950408889634074 : 1.0);
    for (std::int64_t r = 0; r < s.mp; ++r) {
      const auto from = (head * half + (r < half ? r : r - half)) * s.d;
      for (std::int64_t i = 0; i < s.dp; i += kPairPad) {
        float x[kPairPad] = {};
        for (std::int64_t e = i; e < i + kPairPad && e < s.d && r < s.m; ++e) {
          x[e - i] = static_cast<float>(parameter_at(w, from + e) * (r < half ? factor : -factor));
        }
        const Vec low = load(x), high = load(x + kLanes);
        const Vec low_rounded = round_pair(low), high_rounded = round_pair(high);
        const auto at = (r * s.dp + i) / 2;
        store_row_pairs(rows_[0] + at, low_rounded, high_rounded);
        store_row_pairs(rows_[1] + at, round_pair(low - low_rounded),
                        round_pair(high - high_rounded));
      }
    }
    for (int part = 0; part < 2; ++part) {
      for (std::int64_t r = 0; r < s.mp; r += kLanes) {
        for (std::int64_t i = 0; i < s.dp / 2; i += kLanes) {
          transpose_words(rows_[part] + r * s.dp / 2 + i, s.dp / 2,
                          panels_[part] + (r / kPanel * s.dp / 2 + i) * kPanel + r % kPanel,
                          kPanel);
        }
      }
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  LogSum log_sum_;
  float *bias_, *eps_;
  Pair* rows_[2];
  Pair* panels_[2];
  const void *w_ = this, *b_ = this;
  std::int64_t w_head_ = -1, bias_head_ = -1;
};

}  // namespace performer::kernels::PERFORMER_ISA
