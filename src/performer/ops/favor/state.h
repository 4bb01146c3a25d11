#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace performer {

using at::Tensor;

/// log2_scale of a feature that no key has reached.
inline constexpr std::int32_t kEmptyLog2Scale = -(1 << 30);
/// The largest scale that keys give; all others lie between the two.
inline constexpr std::int32_t kLargestLog2Scale = 1 << 28;

/// Everything the keys seen so far leave behind, in O(M' Dv) numbers per sequence and head:
///   kv 2^log2_scale = sum_j phi(k_j) v_j^T,   normalizer 2^log2_scale = sum_j phi(k_j),
/// feature by feature, without the constant 1/sqrt(M). Plain tensors: save, copy, index and move
/// them freely.
struct FavorState {
  Tensor kv;           // [N, Hs, M', Dv] float32 or float64
  Tensor normalizer;   // [N, Hs, M']
  Tensor log2_scale;   // [N, Hs, M'] int32
  Tensor fingerprint;  // [1] int64: identifies projection, map and scale; undefined: not checked

  bool defined() const { return kv.defined(); }
  std::int64_t nbytes() const;
  /// The sequences `index` (int64 [N']) in that order: beams, batches, forks. Copies.
  FavorState reorder(const Tensor& index) const;
  FavorState to(at::Device device) const;
};

/// The state after the keys of `earlier` and then those of `later`. Both must come from the same
/// projection, map and scale. Differentiable in kv and normalizer; associative to rounding.
FavorState merge_states(const FavorState& earlier, const FavorState& later);

}  // namespace performer
