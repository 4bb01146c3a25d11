#include <ATen/ATen.h>

#include <bit>
#include <utility>
#include <vector>

#include "performer/ops/checks.h"
#include "performer/ops/projection/structured.h"

namespace performer {
namespace {

constexpr const char* kName = "structured projection";
constexpr const char* kStructured = "structured projection: ";

struct Part {
  const char* name;
  std::vector<c10::SymInt> sizes;
  at::ScalarType dtype;
};

void check_part(const Tensor& t, const Part& part, const Tensor& row_scale) {
  check_dense(kName, part.name, t);
  TORCH_CHECK(t.defined() && t.scalar_type() == part.dtype &&
                  t.sym_sizes() == c10::SymIntArrayRef(part.sizes),
              kStructured, part.name, " must be ", part.dtype, " ", c10::SymIntArrayRef(part.sizes),
              ", got ", t.defined() ? c10::toString(t.scalar_type()) : "None", " ",
              t.defined() ? t.sym_sizes() : c10::SymIntArrayRef());
  check_device(kName, {part.name, t}, {"row_scale", row_scale});
}

}  // namespace

void StructuredProjection::check() const {
  const bool hadamard = kind == ProjectionKind::kHadamard;
  TORCH_CHECK(hadamard || kind == ProjectionKind::kGivens, kStructured,
              "kind must be hadamard or givens, got ", to_string(kind));
  TORCH_CHECK(dim > 0 && dim <= kMaxProjectionDim, kStructured, "dim must be in 1 ... ",
              kMaxProjectionDim, ", got ", dim);
  check_dense(kName, "row_scale", row_scale);
  TORCH_CHECK(row_scale.defined() && (row_scale.dim() == 1 || row_scale.dim() == 2) &&
                  row_scale.scalar_type() == at::kDouble && row_scale.sym_numel() > 0,
              kStructured,
              "row_scale must be float64 [features] or [heads, features], not empty, got ",
              row_scale.defined() ? c10::toString(row_scale.scalar_type()) : "None", " ",
              row_scale.defined() ? row_scale.sym_sizes() : c10::SymIntArrayRef());
  const auto width = static_cast<std::uint64_t>(dim);
  const std::int64_t rows = hadamard ? static_cast<std::int64_t>(std::bit_ceil(width)) : dim;
  const c10::SymInt blocks = (row_scale.sym_size(-1) + (rows - 1)) / rows;
  const auto part = [&](const char* name, std::vector<c10::SymInt> sizes, at::ScalarType dtype) {
    if (row_scale.dim() == 2) sizes.insert(sizes.begin(), row_scale.sym_size(0));
    return Part{name, std::move(sizes), dtype};
  };
  if (hadamard) {
    check_part(signs, part("signs", {blocks, 3, rows}, at::kChar), row_scale);
    return;
  }
  const std::int64_t layers = 2 * std::bit_width(width - 1);
  check_part(signs, part("signs", {blocks, dim}, at::kChar), row_scale);
  check_part(permutation, part("permutation", {blocks, layers, dim}, at::kLong), row_scale);
  check_part(cosine, part("cosine", {blocks, layers, dim / 2}, at::kDouble), row_scale);
  check_part(sine, part("sine", {blocks, layers, dim / 2}, at::kDouble), row_scale);
  if (!permutation.is_cpu() || !has_values(permutation) || permutation.numel() == 0) return;
  const auto low = permutation.min().item<std::int64_t>();
  const auto high = permutation.max().item<std::int64_t>();
  TORCH_CHECK(low >= 0 && high < dim, kStructured, "permutation must be in [0, ", dim, "), got ",
              low < 0 ? low : high);
  const Tensor reached =
      at::zeros_like(permutation, at::kBool).scatter_(-1, permutation, /*value=*/true);
  TORCH_CHECK(reached.all().item<bool>(), kStructured, "permutation must hold each of 0 ... ",
              dim - 1, " once in each layer, got one twice");
}

}  // namespace performer
