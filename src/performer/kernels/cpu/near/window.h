#pragma once

#include "performer/kernels/cpu/near/slots.h"

// The keys that a block of queries sees exactly: up to three blocks, read once each.
namespace performer::kernels::PERFORMER_ISA {

/// x_t [padded, ld] of rows [count, padded], from column `column` on.
inline void transpose_columns(const float* rows, std::int64_t count, std::int64_t padded,
                              float* x_t, std::int64_t ld) {
  for (std::int64_t i = 0; i < padded; i += kLanes) {
    for (std::int64_t t = 0; t < count; ++t) {
      const float* row = rows + t * padded + i;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) x_t[(i + lane) * ld + t] = row[lane];
    }
  }
}

/// A block of b keys; columns are padded to bp.
struct NearBlock {
  float* x;        // [b, dp]
  float* x_t;      // [dp, bp]
  float* v;        // [b, dvp]
  float* v_t;      // [dvp, bp]; backward passes alone
  float* finite;   // [b, dvp] v with 0 for what is not finite; v itself where all is
  float *dk, *dv;  // [b, dp], [b, dvp] gradients so far; backward passes alone
  float* bias;     // [bp] of the log2 of exact weights; -inf where there is no key
  std::int64_t index;
};

class Window {
 public:
  static constexpr std::int64_t kBlocks = 3;

  Window(const FavorProblem& p, const Sizes& s, Scratch& scratch, bool backward)
      : problem_(p), sizes_(s), bp_(round_up(p.near, kLanes)), token_(scratch.floats(kTile)) {
    for (NearBlock& block : blocks_) {
      block.x = scratch.floats(p.near * s.dp), block.x_t = scratch.floats(s.dp * bp_);
      block.v = scratch.floats(p.near * s.dvp);
      block.v_t = backward ? scratch.floats(s.dvp * bp_) : nullptr;
      block.dk = backward ? scratch.floats(p.near * s.dp) : nullptr;
      block.dv = backward ? scratch.floats(p.near * s.dvp) : nullptr;
      block.bias = scratch.floats(bp_);
      block.index = -1;
    }
    for (float*& room : held_) room = p.causal ? scratch.floats(p.near * s.dvp) : nullptr;
  }

  static std::int64_t floats(const FavorProblem& p, const Sizes& s, bool backward) {
    const auto bp = round_up(p.near, kLanes);
    const auto gradients = backward ? s.dvp * bp + p.near * (s.dp + s.dvp) : 0;
    return kTile + kLine +
           kBlocks * (p.near * (s.dp + 2 * s.dvp) + bp * (s.dp + 1) + gradients + 8 * kLine);
  }

  /// Another sequence or head follows.
  void clear() {
    for (NearBlock& block : blocks_) block.index = -1;
  }

  /// A block of the sequence and head at hand. It stays until the third block after it is read.
  NearBlock& take(const Slots& at, std::int64_t state_head, std::int64_t index) {
    NearBlock& block = blocks_[index % kBlocks];
    if (block.index == index) return block;
    const auto& s = sizes_;
    block.index = index;
    for (std::int64_t begin = 0; begin < at.b; begin += kTile) {
      const auto count = least(kTile, at.b - begin);
      Keys keys{block.x + begin * s.dp, block.v + begin * s.dvp, token_, false, {}};
      load_slots(problem_, s, at, state_head, index * at.b + begin, count, keys,
                 block.bias + begin);
    }
    for (std::int64_t j = at.b; j < bp_; ++j) block.bias[j] = -__builtin_inff();
    if (bp_ > at.b) zero(block.x_t, s.dp * bp_);
    transpose_columns(block.x, at.b, s.dp, block.x_t, bp_);
    if (block.v_t != nullptr) {
      if (bp_ > at.b) zero(block.v_t, s.dvp * bp_);
      transpose_columns(block.v, at.b, s.dvp, block.v_t, bp_);
      zero(block.dk, at.b * s.dp), zero(block.dv, at.b * s.dvp);
    }
    block.finite = problem_.causal ? finite_values(block, at.b) : block.v;
    return block;
  }

  std::int64_t padded() const { return bp_; }

 private:
  float* finite_values(const NearBlock& block, std::int64_t b) {
    const auto n = b * sizes_.dvp;
    Vec test{};  // NaN as soon as one value is not finite
    for (std::int64_t i = 0; i < n; i += kLanes) test += load(block.v + i) * Vec{};
    const float sum = sum_lanes(test);
    if (sum == sum) return block.v;
    float* held = held_[block.index % kBlocks];
    for (std::int64_t i = 0; i < n; ++i) held[i] = block.v[i] * 0 == 0 ? block.v[i] : 0;
    return held;
  }

  const FavorProblem& problem_;
  const Sizes& sizes_;
  std::int64_t bp_;
  float* token_;
  NearBlock blocks_[kBlocks];
  float* held_[kBlocks];
};

}  // namespace performer::kernels::PERFORMER_ISA
