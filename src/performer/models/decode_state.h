#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "performer/ops/favor/state.h"

namespace performer::models {

/// What a layer remembers of the tokens so far; a kind of attention fills its own part.
struct LayerState {
  FavorState favor;       // steps of one token write over it
  bool compared = false;  // `favor` is known to be of
  Tensor projection;      // this projection (undefined: of none)
  Tensor keys, values;    // [B, Hkv, capacity, D], the first DecodeState::position of them written
  Tensor sum;             // [B, H, 1, D] float32: of the values

  std::int64_t nbytes() const;
};

/// A stream of tokens: what Transformer::decode carries from call to call. Starts empty. A copy
/// shares the tensors, which further tokens write to: a fork is made by reorder.
struct DecodeState {
  std::int64_t position = 0;  // tokens seen
  Tensor index;               // int64 [1] on the device, equal to position: the step then reads its
                              // place there and counts it up, and can be recorded; undefined: not
  std::vector<LayerState> layers;

  std::int64_t nbytes() const;
  /// The sequences `index` (int64 [B']) in that order: beams, forks. Copies.
  DecodeState reorder(const Tensor& index) const;
};

}  // namespace performer::models
