#pragma once

#include <ATen/core/Tensor.h>

namespace performer {

/// The 16-bit grid of W: numbers with 8 significant bits (bfloat16) that are also multiples of
/// 2^-24, the smallest float16. Those below 65504 are exact in bfloat16 and in float16 alike;
/// neighbours lie 2^(e-7) apart from 2^e to 2^(e+1), and 2^-24 below 2^-17.
///
/// The nearest number of the grid, ties to even. Integers and powers of two alone, so the same bits
/// on every machine and in every rounding mode; what is not finite stays.
double round_to_grid(double value);

/// The same in float64 tensors, on any device. Its gradient is that of the identity.
at::Tensor round_to_grid(const at::Tensor& values);

}  // namespace performer
