#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string_view>
#include <vector>

#include "performer/ops/projection/projection.h"
#include "performer/ops/projection/structured.h"

namespace performer {
namespace {

ProjectionOptions make_options(std::optional<std::int64_t> heads, std::string_view kind,
                               std::string_view norm) {
  ProjectionOptions options;
  options.kind = parse_projection_kind(kind);
  options.norm = parse_projection_norm(norm);
  options.heads = heads;
  return options;
}

Tensor draw_projection_op(std::int64_t num_features, std::int64_t dim,
                          std::optional<std::int64_t> heads, std::string_view kind,
                          std::string_view norm, std::int64_t seed, std::int64_t layer,
                          std::int64_t draw) {
  ProjectionOptions options = make_options(heads, kind, norm);
  options.seed = seed;
  options.layer = layer;
  options.draw = draw;
  return draw_projection(num_features, dim, options);
}

std::vector<Tensor> draw_structured_op(std::int64_t num_features, std::int64_t dim,
                                       std::optional<std::int64_t> heads, std::string_view kind,
                                       std::string_view norm, std::int64_t seed, std::int64_t layer,
                                       std::int64_t draw) {
  ProjectionOptions options = make_options(heads, kind, norm);
  options.seed = seed;
  options.layer = layer;
  options.draw = draw;
  const auto p = draw_structured(num_features, dim, options);
  if (p.kind == ProjectionKind::kHadamard) return {p.row_scale, p.signs};
  return {p.row_scale, p.signs, p.permutation, p.cosine, p.sine};
}

StructuredProjection from_parts(std::string_view kind, std::int64_t dim, at::TensorList parts) {
  const auto parsed = parse_projection_kind(kind);
  TORCH_CHECK(parsed == ProjectionKind::kHadamard || parsed == ProjectionKind::kGivens,
              "structured projection: kind must be hadamard or givens, got ", kind);
  const std::size_t expected = parsed == ProjectionKind::kHadamard ? 2 : 5;
  TORCH_CHECK(parts.size() == expected, "structured projection: parts must be the ", expected,
              " tensors that draw_structured returns for ", kind, ", got ", parts.size());
  if (expected == 2) return {parsed, dim, parts[0], parts[1], {}, {}, {}};
  return {parsed, dim, parts[0], parts[1], parts[2], parts[3], parts[4]};
}

Tensor structured_apply_op(const Tensor& x, std::string_view kind, std::int64_t dim,
                           at::TensorList parts) {
  return from_parts(kind, dim, parts).apply(x);
}

Tensor structured_dense_op(std::string_view kind, std::int64_t dim, at::TensorList parts,
                           at::ScalarType dtype) {
  return from_parts(kind, dim, parts).dense(dtype);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(performer, m) {
  constexpr auto kExplicit = c10::DispatchKey::CompositeExplicitAutograd;
  m.def(
      "draw_projection(int num_features, int dim, int? heads, str kind, str norm, int seed, "
      "int layer, int draw) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.impl("draw_projection", torch::dispatch(kExplicit, &draw_projection_op));
  m.def(
      "draw_structured(int num_features, int dim, int? heads, str kind, str norm, int seed, "
      "int layer, int draw) -> Tensor[]",
      {at::Tag::pt2_compliant_tag});
  m.impl("draw_structured", torch::dispatch(kExplicit, &draw_structured_op));
  // Compositions of ATen operators: autograd, compilation and every device come from those.
  m.def("structured_apply(Tensor x, str kind, int dim, Tensor[] parts) -> Tensor",
        &structured_apply_op);
  m.def("structured_dense(str kind, int dim, Tensor[] parts, ScalarType dtype) -> Tensor",
        &structured_dense_op);
}

}  // namespace performer
