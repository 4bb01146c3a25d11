#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace performer {

/// The widest rows: a block is dim x dim in float64.
inline constexpr std::int64_t kMaxProjectionDim = 1 << 14;

using at::Tensor;

/// How the directions of the rows w_1 ... w_m depend on each other (paper, Sections 2.4 and B.2).
/// All but iid come in independent blocks of d rows (hadamard: of dp rows, dp the next power of
/// two), the last block cut.
enum class ProjectionKind : std::uint8_t {
  kIid,         // independent
  kOrthogonal,  // R-ORF: Haar, by sign-fixed QR of Gaussian blocks
  kSimplex,     // the d corners of a regular simplex (angles arccos(-1/(d-1))), Haar-rotated
  kHadamard,    // H-ORF: three Hadamard-times-signs factors; see structured.h
  kGivens,      // G-ORF: layers of random plane rotations; see structured.h
};

/// |w|: independent chi_d, as a Gaussian vector has (SM), or sqrt(d) for every row (SMREG).
enum class ProjectionNorm : std::uint8_t { kChi, kSqrtD };

/// What the entries of W are rounded to, once, from float64.
enum class ProjectionRounding : std::uint8_t {
  kBf16,  // bfloat16 values that are multiples of 2^-24, and so exact in float16 too (grid.h)
  kNone,  // float32
};

ProjectionKind parse_projection_kind(std::string_view name);
ProjectionNorm parse_projection_norm(std::string_view name);
/// `op` opens the message where the name is neither "bf16" nor "none".
ProjectionRounding parse_projection_rounding(std::string_view name,
                                             std::string_view op = "draw_projection");
std::string_view to_string(ProjectionKind kind);

struct ProjectionOptions {
  ProjectionKind kind = ProjectionKind::kOrthogonal;
  ProjectionNorm norm = ProjectionNorm::kChi;
  std::optional<std::int64_t> heads;  // absent: one matrix without a head axis, that of head 0
  std::int64_t seed = 0;
  std::int64_t layer = 0;  // 0 ... 2^32 - 1
  std::int64_t draw = 0;   // 0 ... 2^32 - 1: the number of the redraw
  ProjectionRounding rounding = ProjectionRounding::kBf16;  // of dense forms
};

/// The random projection W: float32 [heads, M, D], or [M, D] without heads; on the CPU. A function
/// of its arguments alone: the same bits on every machine and thread count, independent between
/// (seed, layer, head, draw). A smaller num_features gives the leading rows of a larger one.
/// At the same arguments the kinds are coupled (equal norms, orthogonal = QR of iid), which makes
/// comparisons of kinds sharp. Computed in float64 and rounded once, as options.rounding says: on
/// the grid an entry is off by 2^-8 of itself at most, far below the estimator's noise
/// (docs/numerics.md). O(M D) time; orthogonal O(M D^2), simplex too.
Tensor draw_projection(std::int64_t num_features, std::int64_t dim,
                       const ProjectionOptions& options = {});

/// Throws unless the arguments are those of a draw that fits; `op` opens the message.
void check_projection(std::string_view op, std::int64_t num_features, std::int64_t dim,
                      const ProjectionOptions& options);

}  // namespace performer
