#pragma once

#include "performer/kernels/cpu/projection.h"
#include "performer/kernels/cpu/state.h"

// Projected tokens become features, in place: the passes between two matrix products.
namespace performer::kernels::PERFORMER_ISA {

/// Column maxima of l [tokens, ldf]: the scales these keys need, at least those of the state. One
/// of the tokens at least is there: a maximum of -inf left the range of the scales.
inline void lift_scales(const Sizes& s, const float* l, std::int64_t tokens, State& state) {
  for (std::int64_t n = 0; n < s.mp; n += kLanes) {
    Vec top = splat(-__builtin_inff());
    for (std::int64_t t = 0; t < tokens; ++t) top = max(load(l + t * s.ldf + n), top);
    float tops[kLanes];
    store(tops, top);
    for (int lane = 0; lane < kLanes; ++lane) {
      const float needed = round_up_log2(tops[lane]);
      if (needed > state.scale[n + lane]) state.lift(s, n + lane, needed);
    }
  }
}

/// Key features relative to the scales, and their sum over tokens into `total` [mp].
inline void key_exponentials(const Sizes& s, float* l, std::int64_t tokens, const float* scale,
                             float* total) {
  for (std::int64_t n = 0; n < s.mp; n += kLanes) {
    const Vec c = load(scale + n);
    Vec sum{};
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* at = l + t * s.ldf + n;
      const Vec phi = exp2(load(at) - c);
      store(at, phi);
      sum += phi;
    }
    store(total + n, load(total + n) + sum);
  }
}

/// f(u) + eps, zero where masked.
inline void key_values(Map map, const Sizes& s, const Projection& w, const Keys& keys, float* u,
                       std::int64_t tokens) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    float* row = u + t * s.ldf;
    if (keys.masked && !keys.live[t]) {
      zero(row, s.mp);
    } else {
      map_values(map, row, row, w.eps(), 1, s.mp);
    }
  }
}

inline void add_columns(const Sizes& s, const float* phi, std::int64_t tokens, float* total) {
  for (std::int64_t n = 0; n < s.mp; n += kLanes) {
    Vec sum{};
    for (std::int64_t t = 0; t < tokens; ++t) sum += load(phi + t * s.ldf + n);
    store(total + n, load(total + n) + sum);
  }
}

/// What a query row is divided by: sum 2^log2.
struct RowScale {
  float sum;
  float log2;
};

/// Query features times 2^c, each row relative to its largest: weights [mp] in place, and the
/// state's part of the denominator.
inline RowScale query_exponentials(const Sizes& s, float* l, const float* scale, const float* z) {
  Vec top = splat(-__builtin_inff());
  for (std::int64_t n = 0; n < s.mp; n += kLanes) top = max(load(l + n) + load(scale + n), top);
  const float log2 = round_up_log2(max_lanes(top));
  const Vec shift = splat(log2);
  Vec sum{};
  for (std::int64_t n = 0; n < s.mp; n += kLanes) {
    const Vec phi = exp2(load(l + n) + (load(scale + n) - shift));
    store(l + n, phi);
    sum += phi * load(z + n);
  }
  return {sum_lanes(sum), log2};
}

inline RowScale query_values(Map map, const Sizes& s, const Projection& w, float* u,
                             const float* z) {
  map_values(map, u, u, w.eps(), 1, s.mp);
  Vec sum{};
  for (std::int64_t n = 0; n < s.mp; n += kLanes) sum += load(u + n) * load(z + n);
  return {sum_lanes(sum), 0};
}

}  // namespace performer::kernels::PERFORMER_ISA
