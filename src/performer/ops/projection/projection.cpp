#include "performer/ops/projection/projection.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <vector>

#include "performer/ops/projection/blocks.h"
#include "performer/ops/projection/grid.h"
#include "performer/ops/projection/structured.h"

namespace performer {
namespace {

constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;        // RandomKey
constexpr std::int64_t kMaxIndex = (std::int64_t{1} << 32) - 1;  // RandomKey
constexpr std::int64_t kMaxElements = std::int64_t{1} << 32;     // 16 GiB; indices stay in range

constexpr std::array<std::string_view, 5> kKindNames = {"iid", "orthogonal", "simplex", "hadamard",
                                                        "givens"};

// Rounds each of `count` entries once.
void store_rounded(const double* from, std::int64_t count, ProjectionRounding rounding, float* to) {
  const bool on_grid = rounding == ProjectionRounding::kBf16;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(on_grid ? round_to_grid(from[i]) : from[i]);
  }
}

Tensor draw_dense(std::int64_t num_features, std::int64_t dim, const ProjectionOptions& options) {
  const std::int64_t heads = options.heads.value_or(1);
  const std::int64_t blocks = (num_features + dim - 1) / dim;
  Tensor out = at::empty({heads, num_features, dim}, at::kFloat);  // [H, M, D]
  float* data = out.mutable_data_ptr<float>();
  // Blocks are independent and each is written by one thread: no bit depends on the split.
  at::parallel_for(0, heads * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> rows(static_cast<std::size_t>(std::min(num_features, dim) * dim));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t head = task / blocks, first = task % blocks * dim;
      const ProjectionBlock block{first, std::min(dim, num_features - first), dim};
      draw_block(projection_key(options, head), options, block, rows.data());
      store_rounded(rows.data(), block.rows * dim, options.rounding,
                    data + (head * num_features + first) * dim);
    }
  });
  return options.heads ? out : out.squeeze(0);
}

// The dense form of a structured projection, [heads?, M, D].
Tensor draw_structured_dense(std::int64_t num_features, std::int64_t dim,
                             const ProjectionOptions& options) {
  const Tensor exact = draw_structured(num_features, dim, options).dense(at::kDouble);
  Tensor out = at::empty(exact.sizes(), at::kFloat);
  store_rounded(exact.const_data_ptr<double>(), exact.numel(), options.rounding,
                out.mutable_data_ptr<float>());
  return out;
}

}  // namespace

ProjectionKind parse_projection_kind(std::string_view name) {
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (name == kKindNames[i]) return static_cast<ProjectionKind>(i);
  }
  TORCH_CHECK(false, "draw_projection: kind must be one of ", c10::Join(", ", kKindNames),
              ", got \"", name, "\"");
}

std::string_view to_string(ProjectionKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

ProjectionNorm parse_projection_norm(std::string_view name) {
  if (name == "chi") return ProjectionNorm::kChi;
  if (name == "sqrt_d") return ProjectionNorm::kSqrtD;
  TORCH_CHECK(false, "draw_projection: norm must be chi or sqrt_d, got \"", name, "\"");
}

ProjectionRounding parse_projection_rounding(std::string_view name, std::string_view op) {
  if (name == "bf16") return ProjectionRounding::kBf16;
  if (name == "none") return ProjectionRounding::kNone;
  TORCH_CHECK(false, op, ": rounding must be bf16 or none, got \"", name, "\"");
}

void check_projection(std::string_view op, std::int64_t num_features, std::int64_t dim,
                      const ProjectionOptions& options) {
  const std::int64_t heads = options.heads.value_or(1);
  TORCH_CHECK(num_features > 0, op, ": num_features must be positive, got ", num_features);
  TORCH_CHECK(dim > 0, op, ": dim must be positive, got ", dim);
  TORCH_CHECK(dim <= kMaxProjectionDim, op, ": dim must be at most ", kMaxProjectionDim, ", got ",
              dim);
  TORCH_CHECK(heads > 0, op, ": heads must be positive, got ", heads);
  TORCH_CHECK(heads <= kMaxHeads, op, ": heads must be at most ", kMaxHeads, ", got ", heads);
  TORCH_CHECK(options.layer >= 0 && options.layer <= kMaxIndex, op, ": layer must be in 0 ... ",
              kMaxIndex, ", got ", options.layer);
  TORCH_CHECK(options.draw >= 0 && options.draw <= kMaxIndex, op, ": draw must be in 0 ... ",
              kMaxIndex, ", got ", options.draw);
  // By division: the product itself may not fit.
  TORCH_CHECK(num_features <= kMaxElements / heads / dim, op,
              ": heads * num_features * dim must be at most 2^32, got ", heads, " * ", num_features,
              " * ", dim);
}

RandomKey projection_key(const ProjectionOptions& options, std::int64_t head) {
  return {static_cast<std::uint64_t>(options.seed), static_cast<std::uint32_t>(options.layer),
          static_cast<std::uint16_t>(head), static_cast<std::uint32_t>(options.draw)};
}

Tensor draw_projection(std::int64_t num_features, std::int64_t dim,
                       const ProjectionOptions& options) {
  check_projection("draw_projection", num_features, dim, options);
  if (options.kind == ProjectionKind::kHadamard || options.kind == ProjectionKind::kGivens) {
    return draw_structured_dense(num_features, dim, options);
  }
  return draw_dense(num_features, dim, options);
}

}  // namespace performer
