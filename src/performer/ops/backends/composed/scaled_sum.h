#pragma once

#include <ATen/core/Tensor.h>

namespace performer::composed {

using at::Tensor;

/// A sum over tokens with one power-of-two scale per feature:  true value = sum 2^log2.
/// log2 holds integers in the floating type of sum; kEmptyLog2Scale marks a feature no token
/// reached.
struct ScaledSum {
  Tensor sum;   // [..., M', K]
  Tensor log2;  // [..., M']
};

/// Scales above this come from a key.
inline constexpr double kReached = -static_cast<double>(1 << 29);

/// The one merge of chunks, splits, steps and ranks: exact rescaling to the larger scale, then +.
ScaledSum merge(const ScaledSum& a, const ScaledSum& b);

/// Zero, in the shape [B, H, M', K].
ScaledSum empty_sum(at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace performer::composed
