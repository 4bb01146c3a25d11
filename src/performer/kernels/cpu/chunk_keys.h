#pragma once

#include "performer/kernels/cpu/features.h"

// The keys of one causal chunk, feature-major [mp, kChunk]: a vector holds tokens of one feature.
namespace performer::kernels::PERFORMER_ISA {

/// Features relative to scales that no token of the chunk's future decides: those of the state, or
/// of the first key where the state is empty. 2^50 above them a row goes feature by feature.
inline constexpr float kChunkHeadroom = 50;

class ChunkKeys {
 public:
  /// `projection` holds the keys' parameters of the head at hand (pack_keys).
  ChunkKeys(const FavorProblem& p, const Sizes& s, const Projection& projection, Scratch& scratch)
      : problem_(p),
        sizes_(s),
        projection_(projection),
        phi_(scratch.floats(s.mp * kChunk)),
        x_(scratch.floats(kChunk * s.dp)),
        x_t_(scratch.floats(s.dp * kChunk)),
        v_(scratch.floats(kChunk * s.dvp)),
        token_(scratch.floats(kChunk)),
        reference_(scratch.floats(s.mp)),
        top_(scratch.floats(s.mp)),
        sum_(scratch.floats(s.mp)) {}

  static std::int64_t floats(const Sizes& s) {
    return kChunk * (s.mp + 2 * s.dp + s.dvp + 1) + 3 * s.mp + 8 * kLine;
  }

  /// The tokens [begin, begin + tokens) of a sequence.
  void take(std::int64_t state_head, Span span, std::int64_t begin, std::int64_t tokens) {
    const auto& s = sizes_;
    tokens_ = tokens;
    Keys keys{x_, v_, token_, false, {}};
    load_keys(problem_, s, state_head, span, begin, tokens, keys);
    first_live_ = tokens;
    for (std::int64_t j = kChunk; j-- > 0;) {
      live_[j] = j < tokens && keys.live[j];
      if (live_[j]) first_live_ = j;
      if (j >= tokens) token_[j] = problem_.map == Map::kExponential ? -__builtin_inff() : 0;
    }
    masked_ = keys.masked || tokens < kChunk;
    transpose_tokens(x_, tokens, s.dp, x_t_);
  }

  /// Their features, relative to the scales of `state`.
  void make_features(const State& state) {
    project(phi_);
    bad_ = tokens_;
    if (problem_.map == Map::kExponential) {
      choose_reference(state, phi_, reference_);
      exponentials();
    } else {
      values();
    }
  }

  /// The scales of `state`, or of the first key where it is empty. l: project's.
  void choose_reference(const State& state, const float* l, float* reference) const {
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      reference[r] = state.scale[r];
      if (reference[r] > kReachedScale || first_live_ == tokens_ || r >= sizes_.m) continue;
      reference[r] = round_up_log2(l[r * kChunk + first_live_]);
    }
  }

  /// log2 features [mp, kChunk], unscaled (exponential maps). slopes: as feature_major's.
  void project(float* l, float* slopes = nullptr) const {
    projection_.feature_major(x_t_, token_, l, slopes);
  }

  /// The state after the chunk. room: [mp, kChunk].
  void add_to(State& state, float* room) const {
    const auto& s = sizes_;
    const float* phi = phi_;
    if (bad_ < tokens_) {  // relative to the scales the chunk ends with
      project(room);
      for (std::int64_t r = 0; r < s.mp; ++r) {
        state.lift(s, r, most(state.scale[r], top_[r]));
        Vec sum{};
        for (std::int64_t j = 0; j < kChunk; j += kLanes) {
          const Vec l = load(room + r * kChunk + j);
          const Vec x = exp2(l - splat(state.scale[r]));
          store(room + r * kChunk + j, x);
          sum += x;
        }
        state.normalizer[r] += sum_lanes(sum);
      }
      phi = room;
    } else {
      for (std::int64_t r = 0; r < s.mp; ++r) {
        if (state.scale[r] <= kReachedScale && top_[r] > kReachedScale) {
          state.scale[r] = reference_[r];  // empty: any scale fits
        }
        state.normalizer[r] += sum_[r];
      }
    }
    gemm<Plus::kSelf>(s.mp, s.dvp, tokens_, {phi, kChunk, 1}, Right::rows(v_, s.dvp), state.sum,
                      s.dvp);
    for (std::int64_t r = 0; r < s.mp; ++r) {
      if (top_[r] > state.scale[r]) state.lift(s, r, top_[r]);
    }
  }

  /// Adds the features to sums that have their reference as scales.
  void add_plain(State& sums) const {
    const auto& s = sizes_;
    for (std::int64_t r = 0; r < s.mp; ++r) sums.normalizer[r] += sum_[r];
    gemm<Plus::kSelf>(s.mp, s.dvp, tokens_, {phi_, kChunk, 1}, Right::rows(v_, s.dvp), sums.sum,
                      s.dvp);
  }

  const Projection& projection() const { return projection_; }
  const float* phi() const { return phi_; }              // [mp, kChunk]
  const float* x() const { return x_; }                  // [tokens, dp]
  const float* v() const { return v_; }                  // [tokens, dvp]
  const float* reference() const { return reference_; }  // [mp] the scales phi is relative to
  const float* top() const { return top_; }              // [mp] the scales the chunk ends with
  const float* sum() const { return sum_; }              // [mp] of phi over tokens
  std::int64_t tokens() const { return tokens_; }
  bool live(std::int64_t j) const { return live_[j]; }
  std::int64_t first_live() const { return first_live_; }  // tokens() where all are masked
  /// The first token whose features outgrow the headroom; tokens() where none does.
  std::int64_t bad() const { return bad_; }

 private:
  void exponentials() {
    Vec token_top[kChunk / kLanes];
    for (Vec& v : token_top) v = splat(-__builtin_inff());
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      float* row = phi_ + r * kChunk;
      const Vec c = splat(reference_[r]);
      Vec top = splat(-__builtin_inff());
      Vec total{};
#pragma GCC unroll 16
      for (int n = 0; n < kChunk / kLanes; ++n) {
        const Vec l = load(row + n * kLanes);
        const Vec relative = l - c;
        top = max(l, top);
        token_top[n] = max(relative, token_top[n]);
        const Vec phi = exp2(relative);
        store(row + n * kLanes, phi);
        total += phi;
      }
      top_[r] = reference_[r];
      if (first_live_ < tokens_ && r < sizes_.m) {
        top_[r] = most(top_[r], round_up_log2(max_lanes(top)));
      }
      sum_[r] = sum_lanes(total);
    }
    for (int n = 0; n < kChunk / kLanes; ++n) {
      if (max_lanes(token_top[n]) <= kChunkHeadroom) continue;
      float tops[kLanes];
      store(tops, token_top[n]);
      for (int lane = 0; lane < kLanes; ++lane) {
        if (tops[lane] > kChunkHeadroom) bad_ = least<std::int64_t>(bad_, n * kLanes + lane);
      }
    }
  }

  void values() {
    for (std::int64_t r = 0; r < sizes_.mp; ++r) {
      float* row = phi_ + r * kChunk;
      map_values(problem_.map, row, row, projection_.eps() + r, 0, kChunk);
      if (masked_) {
        for (std::int64_t j = 0; j < kChunk; ++j) row[j] = live_[j] ? row[j] : 0;
      }
      Vec total{};
      for (std::int64_t j = 0; j < kChunk; j += kLanes) {
        total += load(row + j);
      }
      sum_[r] = sum_lanes(total);
      reference_[r] = 0;
      top_[r] = r < sizes_.m && first_live_ < tokens_ ? 0 : kEmptyScale;
    }
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  const Projection& projection_;
  float *phi_, *x_, *x_t_, *v_, *token_, *reference_, *top_, *sum_;
  std::int64_t tokens_ = 0, first_live_ = 0, bad_ = 0;
  bool masked_ = false;
  bool live_[kChunk] = {};
};

}  // namespace performer::kernels::PERFORMER_ISA
