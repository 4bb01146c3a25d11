#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace performer {

using at::Tensor;

/// Turns the pairs (2i, 2i + 1) of the last dimension by their token's angles, in float32 (float64
/// for float64), rounded once.  x: [B, L, ..., D], strided or not;  turns: [L, D/2] complex, from
/// RotaryTables;  returns a contiguous tensor of x's dtype. The backward pass turns back and stores
/// nothing of x.
Tensor rotate(const Tensor& x, const Tensor& turns);
/// The same without a graph, for operators that have a backward pass of their own.
Tensor turn_pairs(const Tensor& x, const Tensor& turns);

/// Rotary positions for head width D: position p turns pair i by the angle p base^(-2i/D), or p
/// times the frequency of the pair where frequencies are given. Computed in float64 and kept: from
/// position 0 the longest length asked for, of later ones a stretch that does not grow with them.
class RotaryTables {
 public:
  explicit RotaryTables(std::int64_t head_dim, double base = 10000)
      : head_dim_(head_dim), base_(base) {}
  /// [D/2]; what it holds may still change until the first call of turns().
  explicit RotaryTables(const Tensor& frequencies)
      : head_dim_(2 * frequencies.size(0)), frequencies_(frequencies) {}
  /// Positions of a stream that are computed at once.
  static constexpr std::int64_t kStreamRows = 1024;
  /// cos + i sin of positions first ... first + length - 1: [length, D/2], complex64, or complex128
  /// beside float64.
  Tensor turns(std::int64_t first, std::int64_t length, const at::TensorOptions& like);
  /// The same of the positions `index`, int64 [length], computed where those lie.
  Tensor turns(const Tensor& index, const at::TensorOptions& like) const;

 private:
  Tensor turns_of(const Tensor& positions) const;

  std::int64_t head_dim_;
  double base_ = 0;
  Tensor frequencies_;      // undefined: by the base
  Tensor table_;            // [rows, D/2] in the dtype and on the device of the last call
  std::int64_t begin_ = 0;  // position of its first row
};

}  // namespace performer
