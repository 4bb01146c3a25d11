#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace performer {

using at::Tensor;

/// log2_scale of a feature that no key has reached.
inline constexpr std::int32_t kEmptyLog2Scale = -(1 << 30);
/// The largest scale that keys give; all others lie between the two.
inline constexpr std::int32_t kLargestLog2Scale = 1 << 28;

/// Everything the keys seen so far leave behind, in O(M' Dv) numbers per sequence and head (and, with
/// a near field, O(b (D + Dv))):
///   kv 2^log2_scale = sum_j phi(k_j) v_j^T,   normalizer 2^log2_scale = sum_j phi(k_j),
/// feature by feature, without the constant 1/sqrt(M). Plain tensors: save, copy, index and move
/// them freely.
struct FavorState {
  Tensor kv;             // [N, Hs, M', Dv] float32 or float64
  Tensor normalizer;     // [N, Hs, M']
  Tensor log2_scale;     // [N, Hs, M'] int32
  Tensor fingerprint{};  // [1] int64: identifies projection, map and scale; undefined: not checked
  // With a near field of b tokens a block, the keys that the next token sees exactly: the block
  // before its own in places 0 ... b - 1, what there is of its own from place b on. They are not in
  // the sums above yet. Undefined without a near field.
  Tensor near_keys{};      // [N, Hkv, 2b, D] in the dtype of kv
  Tensor near_values{};    // [N, Hkv, 2b, Dv]
  Tensor near_bias{};      // [N, Hs, 2b] key_bias; -inf: no key here
  Tensor near_position{};  // [N] int64: tokens since the first real one

  bool defined() const { return kv.defined(); }
  bool has_near() const { return near_keys.defined(); }
  std::int64_t near() const { return has_near() ? near_keys.size(2) / 2 : 0; }  // b
  std::int64_t nbytes() const;
  /// The sequences `index` (int64 [N']) in that order: beams, batches, forks. Copies.
  FavorState reorder(const Tensor& index) const;
  FavorState to(at::Device device) const;
  /// The state of change(tensor) for all tensors but the fingerprint, absent ones staying absent.
  template <class Change>
  FavorState each(Change change) const {
    FavorState state = *this;
    for (Tensor* t : {&state.kv, &state.normalizer, &state.log2_scale, &state.near_keys,
                      &state.near_values, &state.near_bias, &state.near_position}) {
      if (t->defined()) *t = change(*t);
    }
    return state;
  }
};

}  // namespace performer
