#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "performer/ops/favor/attention.h"

namespace performer {

/// Which pairs of queries and keys a near field (favor/attention.h) leaves to the features: all of
/// them where `near` is 0.
class FarPairs {
 public:
  FarPairs(const Tensor& k, const FavorOptions& options);

  /// Keys that the queries at `positions` (int64 [R]) do not see exactly, later ones too: bool,
  /// broadcastable to [B, H, R, Lk].
  Tensor far(const Tensor& positions) const;

  /// Queries from the first real token of their row on, bool, broadcastable to [B, H, R, 1]: those
  /// before it see nothing.
  Tensor in_sequence(const Tensor& positions) const;

  /// Of the keys far from the query at `row` of batch entry n, those before it end at `before` and
  /// those behind it begin at `after`. Needs near > 0.
  struct Range {
    std::int64_t before, after;
  };
  Range range(std::int64_t n, std::int64_t row) const;

 private:
  std::int64_t near_, length_;
  bool causal_;
  Tensor origin_;                      // int64 [B, 1, 1, 1]
  std::vector<std::int64_t> origins_;  // the same
};

}  // namespace performer
