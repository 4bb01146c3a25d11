#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace performer::composed {

using at::Tensor;

/// How H query heads share Hkv key heads and Hs states (Hs is Hkv, or H when a key-side parameter
/// differs between the query heads of one key head). Inside, queries are [B, Hs, G, C, ...] with
/// G = H / Hs, keys and values [B, Hs, C, ...].
struct Heads {
  std::int64_t query = 1;  // H
  std::int64_t key = 1;    // Hkv
  std::int64_t state = 1;  // Hs

  std::int64_t group() const { return query / state; }

  Tensor split_queries(const Tensor& x) const;   // [B, H, C, D] -> [B, Hs, G, C, D]
  Tensor join_queries(const Tensor& x) const;    // and back
  Tensor expand_keys(const Tensor& x) const;     // [B, 1|Hkv|Hs, C...] -> [B, 1|Hs, C...]
  Tensor reduce_keys(const Tensor& grad) const;  // [B, Hs, C, D] -> [B, Hkv, C, D], summed

  /// A parameter [heads, ...] as it broadcasts against queries [1|Hs, 1|G, ...] and keys [1|Hs,
  /// ...].
  Tensor query_parameter(const Tensor& p) const;
  Tensor key_parameter(const Tensor& p) const;
};

/// Sums a per-head gradient [heads, ...] to `heads` groups: [heads', ...].
Tensor reduce_heads(const Tensor& grad, std::int64_t heads);

}  // namespace performer::composed
