#include "performer/ops/projection/structured.h"

#include <ATen/ATen.h>

#include "performer/ops/checks.h"

namespace performer {
namespace {

// Sizes of the stored parts are fixed; those of x may be symbols while a graph is traced.
std::int64_t fixed_size(const Tensor& part, std::int64_t axis) {
  return part.sym_size(axis).guard_int(__FILE__, __LINE__);
}

// Unnormalised Walsh-Hadamard transform of the last axis, of n elements, a power of two.
Tensor walsh_hadamard(Tensor y, std::int64_t n) {
  for (std::int64_t half = 1; half < n; half *= 2) {
    const Tensor pairs = y.unflatten(-1, {n / (2 * half), 2, half});
    const Tensor a = pairs.select(-2, 0), b = pairs.select(-2, 1);
    y = at::stack({a + b, a - b}, -2).flatten(-3, -1);
  }
  return y;
}

// [heads?, ...] -> broadcastable against [..., heads?, L, ...].
Tensor over_positions(const Tensor& part, bool has_heads) {
  return has_heads ? part.unsqueeze(1) : part;
}

Tensor apply_hadamard(const StructuredProjection& p, const Tensor& x, bool has_heads) {
  const Tensor signs = p.signs.to(x.scalar_type());
  const std::int64_t dp = fixed_size(signs, -1);
  Tensor y = at::constant_pad_nd(x, {0, dp - p.dim}).unsqueeze(-2);  // [..., 1, dp]
  for (std::int64_t factor = 2; factor >= 0; --factor) {
    y = walsh_hadamard(y * over_positions(signs.select(-2, factor), has_heads), dp);
  }
  return y;  // [..., blocks, dp]
}

Tensor apply_givens(const StructuredProjection& p, const Tensor& x, bool has_heads) {
  const std::int64_t pairs = p.dim / 2, layers = fixed_size(p.permutation, -2);
  const Tensor cosine = p.cosine.to(x.scalar_type()), sine = p.sine.to(x.scalar_type());
  Tensor y = x.unsqueeze(-2) * over_positions(p.signs, has_heads).to(x.scalar_type());
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Tensor order = over_positions(p.permutation.select(-2, layer), has_heads);
    y = y.gather(-1, order.expand_as(y));
    const Tensor c = over_positions(cosine.select(-2, layer), has_heads);
    const Tensor s = over_positions(sine.select(-2, layer), has_heads);
    const Tensor a = y.narrow(-1, 0, pairs), b = y.narrow(-1, pairs, pairs);
    const Tensor rest = y.narrow(-1, 2 * pairs, p.dim - 2 * pairs);
    // Products and sums as separate operations: no fused rounding, so the same bits everywhere.
    y = at::cat({c * a - s * b, s * a + c * b, rest}, -1);
  }
  return y;  // [..., blocks, D]
}

}  // namespace

Tensor StructuredProjection::apply(const Tensor& x) const {
  check();
  check_defined("structured_apply", {"x", x});
  check_device("structured_apply", {"x", x}, {"the projection", row_scale});
  check_dense("structured_apply", "x", x);
  const bool has_heads = row_scale.dim() == 2;
  TORCH_CHECK(x.is_floating_point(), "structured_apply: x must be floating point, got ",
              x.scalar_type());
  TORCH_CHECK(x.dim() >= 1 && x.sym_size(-1) == dim, "structured_apply: x must be [..., ", dim,
              "], got ", x.sym_sizes());
  TORCH_CHECK(!has_heads || (x.dim() >= 3 && x.sym_size(-3) == row_scale.sym_size(0)),
              "structured_apply: x must be [..., ", row_scale.sym_size(0), ", length, ", dim,
              "] for a projection of ", row_scale.sym_size(0), " heads, got ", x.sym_sizes());
  const auto work_type = at::promote_types(x.scalar_type(), at::kFloat);
  const Tensor work = x.to(work_type);
  const Tensor y = kind == ProjectionKind::kHadamard ? apply_hadamard(*this, work, has_heads)
                                                     : apply_givens(*this, work, has_heads);
  const Tensor rows = y.flatten(-2, -1).narrow(-1, 0, fixed_size(row_scale, -1));  // [..., M]
  return (rows * over_positions(row_scale, has_heads).to(work_type)).to(x.scalar_type());
}

Tensor StructuredProjection::dense(at::ScalarType dtype) const {
  check();
  TORCH_CHECK(at::isFloatingType(dtype), "structured_dense: dtype must be floating point, got ",
              dtype);
  Tensor identity = at::eye(dim, row_scale.options());  // [D, D]
  if (row_scale.dim() == 2) identity = identity.expand({fixed_size(row_scale, 0), dim, dim});
  return apply(identity).transpose(-1, -2).to(dtype).contiguous();  // [heads?, M, D]
}

std::int64_t StructuredProjection::numel() const {
  std::int64_t total = row_scale.numel() + signs.numel();
  if (permutation.defined()) total += permutation.numel() + cosine.numel() + sine.numel();
  return total;
}

StructuredProjection StructuredProjection::to(at::Device device) const {
  const auto move = [&](const Tensor& t) { return t.defined() ? t.to(device) : t; };
  return {kind, dim, move(row_scale), move(signs), move(permutation), move(cosine), move(sine)};
}

}  // namespace performer
