#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/ops/favor/arguments.h"

// The near field is cut into blocks from the first real token of each sequence, and a state may end
// anywhere in a block. So tokens move to slots in which every sequence has its blocks in the same
// places:  [ the state's block before | the state's part of a block, and the tokens | empty ].
namespace performer::composed {

using at::Tensor;

/// Which slot each token takes, and back. All index arithmetic is on the device.
class Slots {
 public:
  explicit Slots(const FavorArgs& dense);

  std::int64_t count() const { return count_; }  // T, a multiple of the block
  std::int64_t blocks() const { return count_ / near_; }

  /// The call with slots for tokens, without a near state: q [B, H, T, D], k, v, key_mask [B, T],
  /// key_bias [B, Hs, T] and query_bias [B, heads, T].
  FavorArgs call() const;

  /// [B, X, L, ...] to [B, X, T, ...], 0 in the other slots.
  Tensor from_tokens(const Tensor& t) const;
  /// [B, X, T, ...] to [B, X, L, ...], 0 for masked tokens before the first real one.
  Tensor to_tokens(const Tensor& t) const;
  /// The part of [B, X, T, ...] that lies in the slots of the initial state: [B, X, 2b, ...].
  Tensor to_state(const Tensor& t) const;

  /// Keys in block u are in the final state's sums (and not in its near field): bool [B].
  Tensor joins(std::int64_t block) const;
  /// The final state's near field of [B, X, T, ...]: [B, X, 2b, ...], `fill` where there is no
  /// token; and the way back, 0 elsewhere.
  Tensor to_final(const Tensor& t, double fill) const;
  Tensor from_final(const Tensor& t) const;
  Tensor final_position() const { return position_; }  // [B]

 private:
  Tensor joined(const Tensor& state, const Tensor& tokens, double fill) const;

  const FavorArgs& args_;
  std::int64_t near_, length_, count_;
  Tensor source_, filled_;  // [B, T] index into [state's 2b | tokens], and whether there is one
  Tensor slot_, has_slot_;  // [B, L] slot of a token, and whether it has one
  Tensor held_;             // bool [B, 2b] places that the initial state holds
  Tensor start_, stays_;    // [B] first slot of the final near field; bool [B, 2b] places it holds
  Tensor position_;         // [B] of the final state
};

}  // namespace performer::composed
