#pragma once

#include "performer/kernels/cpu/simd.h"
#include "performer/kernels/params.h"

// The generalised maps f and their slopes f', elementwise.
namespace performer::kernels::PERFORMER_ISA {

inline constexpr float kLog2E = 1.44269504088896341F;

inline Vec exp(Vec u) { return exp2(u * splat(kLog2E)); }
inline Vec reciprocal_of_sum(Vec e) { return splat(1) / (splat(1) + e); }

template <float (*Function)(float)>
inline Vec by_lane(Vec u) {
  float lanes[kLanes];
  store(lanes, u);
  for (float& lane : lanes) lane = Function(lane);
  return load(lanes);
}
inline float cos_lane(float u) { return __builtin_cosf(u); }
inline float minus_sin_lane(float u) { return -__builtin_sinf(u); }
inline float tanh_lane(float u) { return __builtin_tanhf(u); }
inline float gauss_lane(float u) { return 0.5F * __builtin_erfcf(-u * 0.70710678118654752F); }

inline Vec map_value(Map map, Vec u) {
  switch (map) {
    case Map::kRelu:
      return u <= Vec{} ? Vec{} : u;  // NaN stays
    case Map::kSigmoid:
      return reciprocal_of_sum(exp(-u));
    case Map::kAbs:
      return u < Vec{} ? -u : u;
    case Map::kGelu:
      return u * by_lane<gauss_lane>(u);
    case Map::kCos:
      return by_lane<cos_lane>(u);
    case Map::kTanh:
      return by_lane<tanh_lane>(u);
    case Map::kSquare:
      return u * u;
    case Map::kElu1:  // exp(u) for u < 0, u + 1 above
      return u > Vec{} ? u + splat(1) : exp(u);
    case Map::kSgn:
      return u > Vec{} ? splat(1) : (u < Vec{} ? splat(-1) : u);
    case Map::kIdentity:
    case Map::kExponential:  // has no f of u alone
      return u;
  }
  __builtin_unreachable();
}

inline Vec map_slope(Map map, Vec u) {
  switch (map) {
    case Map::kRelu:
      return u > Vec{} ? splat(1) : Vec{};
    case Map::kSigmoid:  // 1 - s is the sigmoid of -u, which has no difference to cancel
      return reciprocal_of_sum(exp(-u)) * reciprocal_of_sum(exp(u));
    case Map::kAbs:
      return u > Vec{} ? splat(1) : (u < Vec{} ? splat(-1) : u);
    case Map::kGelu:  // u Phi(u): Phi(u) + u Phi'(u)
      return by_lane<gauss_lane>(u) + u * exp(u * u * splat(-0.5F)) * splat(0.398942280401432678F);
    case Map::kCos:
      return by_lane<minus_sin_lane>(u);
    case Map::kTanh: {  // 1 - tanh^2 = 4 s (1 - s), s the sigmoid of 2 u
      const Vec two = u + u;
      return splat(4) * reciprocal_of_sum(exp(-two)) * reciprocal_of_sum(exp(two));
    }
    case Map::kSquare:
      return u + u;
    case Map::kElu1:
      return u > Vec{} ? splat(1) : exp(u);
    case Map::kSgn:
      return Vec{};
    case Map::kIdentity:
    case Map::kExponential:
      return splat(1);
  }
  __builtin_unreachable();
}

/// Calls body(map) with the map as a compile-time constant, so that the switch above is made once
/// per loop.
template <class Body>
inline void with_map(Map map, Body body) {
#define PERFORMER_CASE(name) \
  case Map::name:            \
    return body([](auto function, Vec u) { return function(Map::name, u); })
  switch (map) {
    PERFORMER_CASE(kRelu);
    PERFORMER_CASE(kSigmoid);
    PERFORMER_CASE(kAbs);
    PERFORMER_CASE(kGelu);
    PERFORMER_CASE(kCos);
    PERFORMER_CASE(kTanh);
    PERFORMER_CASE(kSquare);
    PERFORMER_CASE(kElu1);
    PERFORMER_CASE(kSgn);
    PERFORMER_CASE(kIdentity);
    PERFORMER_CASE(kExponential);
  }
#undef PERFORMER_CASE
}

/// to[i] = f(u[i]) + eps[i * eps_step], n a multiple of kLanes. eps_step is 0 or 1.
inline void map_values(Map map, float* to, const float* u, const float* eps, std::int64_t eps_step,
                       std::int64_t n) {
  with_map(map, [&](auto at) {
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const Vec add = eps_step == 0 ? splat(*eps) : load(eps + i);
      store(to + i, at(map_value, load(u + i)) + add);
    }
  });
}

/// to[i] *= f'(u[i])
inline void multiply_slopes(Map map, float* to, const float* u, std::int64_t n) {
  with_map(map, [&](auto at) {
    for (std::int64_t i = 0; i < n; i += kLanes) {
      store(to + i, load(to + i) * at(map_slope, load(u + i)));
    }
  });
}

/// to[i] *= by[i]
inline void multiply(float* to, const float* by, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) store(to + i, load(to + i) * load(by + i));
}

/// log2(2^l + eps) for each l: how phi = exp(u) + eps keeps to the scales of exponential features.
/// -inf, where nothing is, stays.
class LogSum {
 public:
  LogSum() = default;
  explicit LogSum(const FavorProblem& p)
      : active_(p.map == Map::kExponential && p.eps > 0),
        floor_(active_ ? static_cast<float>(__builtin_log2(p.eps)) : 0) {}

  bool active() const { return active_; }

  void apply(float* l, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; i += kLanes) store(l + i, with_floor(load(l + i)));
  }

  /// slope[i] = 2^l / (2^l + eps). From l: where eps outweighs 2^l, its sum has forgotten it.
  void slopes(const float* l, float* slope, std::int64_t n) const {
    const Vec floor = splat(floor_);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const Vec at = load(l + i);
      const Vec t = exp2(at > floor ? floor - at : at - floor);
      store(slope + i, (at > floor ? splat(1) : t) / (splat(1) + t));
    }
  }

 private:
  // log2(1 + t) / t on [0, 1], to 2e-7 with its own rounding.
  static Vec log2_1p_over(Vec t) {
    Vec p = splat(0.00757913751121181F);
    p = p * t + splat(-0.04268719288223697F);
    p = p * t + splat(0.11305198984435415F);
    p = p * t + splat(-0.19728522439234158F);
    p = p * t + splat(0.2757196684411042F);
    p = p * t + splat(-0.3584284923783576F);
    p = p * t + splat(0.4806954753185511F);
    p = p * t + splat(-0.7213403288518873F);
    return p * t + splat(1.4426949983881154F);
  }

  Vec with_floor(Vec l) const {
    const Vec floor = splat(floor_);
    const Vec distance = l > floor ? floor - l : l - floor;
    const Vec t = exp2(distance);
    const Vec sum = (l > floor ? l : floor) + t * log2_1p_over(t);
    return l == splat(-__builtin_inff()) ? l : sum;
  }

  bool active_ = false;
  float floor_ = 0;  // log2 eps
};

}  // namespace performer::kernels::PERFORMER_ISA
