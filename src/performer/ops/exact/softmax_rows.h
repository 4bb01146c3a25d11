#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/ops/exact/attention.h"

namespace performer {

/// Repeats each of t's heads for the query heads it serves: [B, Hkv, ...] -> [B, H, ...].
Tensor expand_heads(const Tensor& t, std::int64_t heads);

/// Exact softmax weights of any block of query rows against all keys: the shared part of
/// exact_attention, exact_attention_map and approximation_quality. Float32 arithmetic, float64 for
/// float64 input.
class SoftmaxRows {
 public:
  /// Checks the input; `op` names the caller in messages.
  SoftmaxRows(const char* op, const Tensor& q, const Tensor& k, const ExactOptions& options);

  /// How many query rows to take at once, so that a block of weights stays small.
  std::int64_t block_rows() const;

  /// q: [B, H, R, D] -> scale q.k: [B, H, R, Lk].
  Tensor products(const Tensor& q) const;

  /// Which keys the rows at `positions` (int64 [R]) may see: bool, broadcastable to [B, H, R, Lk].
  Tensor allowed(const Tensor& positions) const;

  /// Softmax over the allowed keys: [B, H, R, Lk]; a row without keys is 0.
  Tensor weights(const Tensor& products, const Tensor& positions) const;

  /// v: [B, Hkv, Lk, Dv] -> [B, H, Lk, Dv], with zeros for removed keys, whatever they hold.
  Tensor values(const Tensor& v) const;

  const Tensor& keys() const { return k_; }  // [B, H, Lk, D], unscaled
  double scale() const { return scale_; }

 private:
  Tensor k_;
  Tensor bias_;         // [B, 1|H, 1, Lk] finite, or undefined
  Tensor key_allowed_;  // [B|1, 1|H, 1, Lk] bool
  std::int64_t heads_ = 0;
  double scale_ = 1;
  bool causal_;
};

/// Throws unless q, k and v (may be undefined) are [B, H, Lq, D], [B, Hkv, Lk, D], [B, Hkv, Lk, Dv]
/// of one floating dtype and device, with Hkv dividing H.
void check_heads(const char* op, const Tensor& q, const Tensor& k, const Tensor& v = {});

/// Throws unless key_mask is bool [B, Lk] on k's device.
void check_key_mask(const char* op, const Tensor& key_mask, const Tensor& k);

}  // namespace performer
