#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "performer/ops/projection/projection.h"
#include "performer/ops/projection/structured.h"
#include "performer/ops/signature.h"

namespace performer {
namespace {

// The arguments of both draws, and what the dense one alone has.
struct Draw {
  std::int64_t num_features = 0, dim = 0;
  std::optional<std::int64_t> heads;
  std::string kind, norm;
  std::int64_t seed = 0, layer = 0, draw = 0;
  std::string rounding = "bf16";

  ProjectionOptions options() const {
    return {
        parse_projection_kind(kind),        parse_projection_norm(norm), heads, seed, layer, draw,
        parse_projection_rounding(rounding)};
  }
};
constexpr std::tuple kDrawFields{
    SchemaField{"num_features", &Draw::num_features},
    SchemaField{"dim", &Draw::dim},
    SchemaField{"heads", &Draw::heads},
    SchemaField{"kind", &Draw::kind},
    SchemaField{"norm", &Draw::norm},
    SchemaField{"seed", &Draw::seed},
    SchemaField{"layer", &Draw::layer},
    SchemaField{"draw", &Draw::draw},
};
constexpr auto kDenseDrawFields =
    std::tuple_cat(kDrawFields, std::tuple{SchemaField{"rounding", &Draw::rounding, 0, "'bf16'"}});
using DrawSignature = Signature<kDrawFields, 0, 0, Draw>;
using DenseDrawSignature = Signature<kDenseDrawFields, 0, 0, Draw>;

Tensor draw_projection_op(const Draw& d) {
  return draw_projection(d.num_features, d.dim, d.options());
}

std::vector<Tensor> draw_structured_op(const Draw& d) {
  const auto p = draw_structured(d.num_features, d.dim, d.options());
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
  const auto draw = [&]<class Of>(const std::string& name, const char* result, auto* function,
                                  Of /*signature*/) {
    m.def((name + "(" + Of::text() + ") -> " + result).c_str(), {at::Tag::pt2_compliant_tag});
    m.impl(name.c_str(), torch::dispatch(kExplicit, function));
  };
  draw("draw_projection", "Tensor", DenseDrawSignature::kFunction<&draw_projection_op>,
       DenseDrawSignature());
  draw("draw_structured", "Tensor[]", DrawSignature::kFunction<&draw_structured_op>,
       DrawSignature());
  // Compositions of ATen operators: autograd, compilation and every device come from those.
  m.def("structured_apply(Tensor x, str kind, int dim, Tensor[] parts) -> Tensor",
        &structured_apply_op);
  m.def("structured_dense(str kind, int dim, Tensor[] parts, ScalarType dtype) -> Tensor",
        &structured_dense_op);
}

}  // namespace performer
