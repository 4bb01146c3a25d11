#pragma once

#include "performer/kernels/cpu/layout.h"
#include "performer/kernels/cpu/tokens.h"

namespace performer::kernels::PERFORMER_ISA {

/// (S, z, c) of one head: true values are 2^c times those kept.
struct State {
  float* sum = nullptr;         // [mp, dvp] S
  float* normalizer = nullptr;  // [mp] z
  float* scale = nullptr;       // [mp] c, integers; kEmptyScale where no key arrived

  State() = default;
  State(const Sizes& s, Scratch& scratch)
      : sum(scratch.floats(s.mp * s.dvp)),
        normalizer(scratch.floats(s.mp)),
        scale(scratch.floats(s.mp)) {}
  static std::int64_t floats(const Sizes& s) { return s.mp * s.dvp + 2 * s.mp + 3 * kLine; }

  void clear(const Sizes& s) {
    zero(sum, s.mp * s.dvp);
    zero(normalizer, s.mp);
    for (std::int64_t r = 0; r < s.mp; ++r) scale[r] = kEmptyScale;
  }

  void load(const Sizes& s, const StateView& from, std::int64_t index) {
    clear(s);
    if (from.normalizer == nullptr) return;
    const float* kv = from.kv + index * s.m * s.dv;
    for (std::int64_t r = 0; r < s.m; ++r) {
      for (std::int64_t e = 0; e < s.dv; ++e) sum[r * s.dvp + e] = kv[r * s.dv + e];
      normalizer[r] = from.normalizer[index * s.m + r];
      if (from.log2_scale != nullptr) {
        scale[r] = static_cast<float>(from.log2_scale[index * s.m + r]);
      }
    }
  }

  void store(const Sizes& s, const StateView& to, std::int64_t index) const {
    float* kv = to.kv + index * s.m * s.dv;
    for (std::int64_t r = 0; r < s.m; ++r) {
      for (std::int64_t e = 0; e < s.dv; ++e) kv[r * s.dv + e] = sum[r * s.dvp + e];
      to.normalizer[index * s.m + r] = normalizer[r];
      if (to.log2_scale != nullptr) {
        to.log2_scale[index * s.m + r] = static_cast<std::int32_t>(scale[r]);
      }
    }
  }

  void copy(const Sizes& s, const State& from) {
    __builtin_memcpy(sum, from.sum, static_cast<std::size_t>(s.mp * s.dvp) * sizeof(float));
    __builtin_memcpy(normalizer, from.normalizer, static_cast<std::size_t>(s.mp) * sizeof(float));
    __builtin_memcpy(scale, from.scale, static_cast<std::size_t>(s.mp) * sizeof(float));
  }

  /// Lifts the scale of feature r to `to`, which is not below it.
  void lift(const Sizes& s, std::int64_t r, float to) {
    if (to == scale[r]) return;
    const float factor = exp2_integer(scale[r] - to);
    scale[r] = to;
    normalizer[r] *= factor;
    for (std::int64_t i = 0; i < s.dvp; ++i) sum[r * s.dvp + i] *= factor;
  }

  /// The one merge of states.
  void merge(const Sizes& s, const State& other) {
    for (std::int64_t r = 0; r < s.mp; ++r) {
      lift(s, r, most(scale[r], other.scale[r]));
      const float factor = exp2_integer(other.scale[r] - scale[r]);
      normalizer[r] += other.normalizer[r] * factor;
      for (std::int64_t i = 0; i < s.dvp; ++i) {
        sum[r * s.dvp + i] += other.sum[r * s.dvp + i] * factor;
      }
    }
  }

  /// Adds a state of the same scales.
  void add_plain(const Sizes& s, const State& other) {
    for (std::int64_t i = 0; i < s.mp * s.dvp; i += kLanes) {
      kernels::PERFORMER_ISA::store(sum + i, kernels::PERFORMER_ISA::load(sum + i) +
                                                 kernels::PERFORMER_ISA::load(other.sum + i));
    }
    for (std::int64_t r = 0; r < s.mp; ++r) normalizer[r] += other.normalizer[r];
  }

  bool reached(const Sizes& s) const {
    for (std::int64_t r = 0; r < s.m; ++r) {
      if (scale[r] > kReachedScale) return true;
    }
    return false;
  }
};

}  // namespace performer::kernels::PERFORMER_ISA
