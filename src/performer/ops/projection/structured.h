#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "performer/ops/projection/projection.h"

namespace performer {

/// A projection W kept as few numbers, with a product W x in O(M log D) (paper, B.2).
///
/// hadamard: blocks of dp rows, dp the power of two >= D;
///   W_block = diag(row_scale) H D1 H D2 H D3, H the unnormalised Hadamard matrix, columns cut to
///   D. The norms are chi_dp before the cut, so that the D columns kept have the marginals of a
///   Gaussian as far as the directions are uniform; sqrt_d rescales the cut rows to sqrt(D). With
///   D < dp the rows of a block are orthogonal only before the cut. 4 M numbers (M a multiple of
///   dp).
/// givens: blocks of D rows; W_block = diag(row_scale) G_n ... G_1 diag(signs), n = 2 ceil(log2 D),
///   where G permutes the coordinates at random and turns the pairs (i, i + D/2) by random angles.
///   About 4 M log2 D numbers.
/// The directions of both are uniform only as D grows (paper: a small bias).
struct StructuredProjection {
  ProjectionKind kind;
  std::int64_t dim;    // D
  Tensor row_scale;    // [heads?, M] float64
  Tensor signs;        // int8: hadamard [heads?, blocks, 3, dp], givens [heads?, blocks, D]
  Tensor permutation;  // givens: int64 [heads?, blocks, n, D], else undefined
  Tensor cosine;       // givens: float64 [heads?, blocks, n, D/2]
  Tensor sine;         // the same

  /// Throws unless the tensors have the shapes, dtypes and device above, and orders name
  /// coordinates: whoever stores the numbers may have put them together wrongly.
  void check() const;
  /// W x: [..., D] -> [..., M]; with heads [..., H, L, D] -> [..., H, L, M]. x's dtype, arithmetic
  /// in float32 at least. Differentiable in x.
  Tensor apply(const Tensor& x) const;
  /// W: [heads?, M, D]. As float32 bit-equal to draw_projection of the same arguments without
  /// rounding (ProjectionRounding::kNone).
  Tensor dense(at::ScalarType dtype = at::kFloat) const;
  /// Numbers stored.
  std::int64_t numel() const;
  StructuredProjection to(at::Device device) const;
};

/// options.kind must be hadamard or givens. Other arguments as draw_projection, but for rounding:
/// what is stored stays as drawn.
StructuredProjection draw_structured(std::int64_t num_features, std::int64_t dim,
                                     const ProjectionOptions& options);

}  // namespace performer
