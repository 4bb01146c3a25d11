#pragma once

#include <ATen/core/Tensor.h>

namespace performer::composed {

using at::Tensor;

inline constexpr double kLog2E = 1.4426950408889634074;

/// 2^e, exactly, for integer-valued floating e of either sign: 0 below the normal range, Inf above.
/// (exp2 of a vector math library promises no exact powers; the scales of states need them.)
Tensor exact_exp2(const Tensor& e);

/// x 2^e, exactly unless the result leaves the normal range; 0 stays 0 for every e.
Tensor scale_pow2(const Tensor& x, const Tensor& e);

/// The integer scale of a log2 magnitude: rounded up, within +-2^28; NaN counts as unreached.
Tensor round_up_log2(const Tensor& log2);

}  // namespace performer::composed
