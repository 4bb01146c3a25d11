#pragma once

#include "performer/kernels/cpu/maps.h"
#include "performer/kernels/cpu/simd.h"
#include "performer/kernels/cpu/workspace.h"
#include "performer/kernels/params.h"

// Padded sizes, the cut of a thread's scratch memory, and who reads which head.
namespace performer::kernels::PERFORMER_ISA {

/// Floats of a cache line: every array of a scratch starts on one, and takes as much more at most.
inline constexpr std::int64_t kLine = 16;

/// Tokens of a tile of a bidirectional pass: its features stay in the second-level cache.
inline constexpr std::int64_t kTile = 96;
/// Tokens of a causal chunk.
inline constexpr std::int64_t kChunk = 64;

struct Sizes {
  explicit Sizes(const FavorProblem& p, std::int64_t pad = kLanes)
      : d(p.dim),
        dp(round_up(p.dim, pad)),
        dv(p.value_dim),
        dvp(round_up(p.value_dim, pad)),
        m(p.features),
        mp(round_up(p.features, pad)),
        ldf(mp + kLanes) {}

  std::int64_t d, dp;    // width of q and k, padded to whole vectors (or tiles)
  std::int64_t dv, dvp;  // of v
  std::int64_t m, mp;    // features
  std::int64_t ldf;      // rows of token-major features: no power of two, which would meet few sets
  /// Panels of [depth, mp].
  std::int64_t panels(std::int64_t depth) const { return round_up(mp, kPanel) * depth; }
};

/// Cuts scratch memory into arrays on cache lines.
class Scratch {
 public:
  explicit Scratch(void* memory) : next_(static_cast<char*>(memory)) {}
  float* floats(std::int64_t n) {
    auto* array = reinterpret_cast<float*>(next_);
    next_ += round_up(n * static_cast<std::int64_t>(sizeof(float)), 64);
    return array;
  }
  /// A part of its own.
  Scratch take(std::size_t bytes) {
    return Scratch(floats((static_cast<std::int64_t>(bytes) + 3) / 4));
  }

 private:
  char* next_;
};

/// Tokens [begin, begin + length) of sequence n lie in batch entry `batch`.
struct Span {
  std::int64_t batch, begin, length;
};
inline Span query_span(const FavorProblem& p, std::int64_t n) {
  if (p.query_offsets == nullptr) return {n, 0, p.query_length};
  return {0, p.query_offsets[n], p.query_offsets[n + 1] - p.query_offsets[n]};
}
inline Span key_span(const FavorProblem& p, std::int64_t n) {
  if (p.key_offsets == nullptr) return {n, 0, p.key_length};
  return {0, p.key_offsets[n], p.key_offsets[n + 1] - p.key_offsets[n]};
}

/// The head of a parameter or key tensor with `of` heads that head h of `heads` reads.
inline std::int64_t head_of(std::int64_t h, std::int64_t heads, std::int64_t of) {
  return h / (heads / of);
}

inline double parameter_at(const Parameter& p, std::int64_t i) {
  return p.wide ? static_cast<const double*>(p.data)[i]
                : static_cast<double>(static_cast<const float*>(p.data)[i]);
}

}  // namespace performer::kernels::PERFORMER_ISA
