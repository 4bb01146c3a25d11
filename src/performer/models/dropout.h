#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace performer::models {

using at::Tensor;

/// Whose mask: masks are functions of the key, the size and the device's kind alone, so that a
/// recomputed block and a resumed run drop the same elements, whatever the number of threads.
struct DropoutKey {
  double probability = 0;  // 0: nothing is dropped
  std::uint64_t key = 0;

  /// An independent key for a part: a layer, a place in it, a tower.
  DropoutKey child(std::uint64_t part) const;
};

/// x / (1 - p) where kept, 0 where dropped. Probability 0: x itself, no operation at all.
Tensor dropout(const Tensor& x, const DropoutKey& key);

}  // namespace performer::models
