#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "performer/ops/projection/blocks.h"
#include "performer/ops/projection/structured.h"

namespace performer {
namespace {

constexpr int kMaxAttempts = 256;
constexpr std::int64_t kFactors = 3;  // of H D

// +-1 from bits first ... first + count - 1 of a stream; another attempt gives other signs.
void draw_signs(const RandomStream& bits, std::int64_t first, std::int64_t count, int attempt,
                std::int8_t* out) {
  std::array<std::uint32_t, 4> words{};
  for (std::int64_t i = first; i < first + count; ++i) {
    if (i == first || i % 128 == 0) {
      words = bits.block(static_cast<std::uint32_t>(i / 128), static_cast<std::uint8_t>(attempt));
    }
    *out++ = (words[static_cast<std::size_t>(i % 128 / 32)] >> (i % 32) & 1) != 0 ? -1 : 1;
  }
}

// Squared norms of the rows of H D1 H D2 H D3 over the first dim of its dp columns. Integers below
// 2^53 throughout, so exact.
std::vector<double> cut_row_squares(const std::int8_t* signs, std::int64_t dp, std::int64_t dim) {
  std::vector<double> squares(static_cast<std::size_t>(dp), 0.0), y(squares);
  for (std::int64_t column = 0; column < dim; ++column) {
    std::fill(y.begin(), y.end(), 0.0);
    y[static_cast<std::size_t>(column)] = 1.0;
    for (std::int64_t factor = kFactors - 1; factor >= 0; --factor) {
      for (std::int64_t i = 0; i < dp; ++i) {
        y[static_cast<std::size_t>(i)] *= signs[factor * dp + i];
      }
      for (std::int64_t half = 1; half < dp; half *= 2) {
        for (std::int64_t i = 0; i < dp; ++i) {
          if ((i & half) != 0) continue;
          double& a = y[static_cast<std::size_t>(i)];
          double& b = y[static_cast<std::size_t>(i + half)];
          const double sum = a + b;
          b = a - b;
          a = sum;
        }
      }
    }
    for (std::size_t i = 0; i < y.size(); ++i) squares[i] += y[i] * y[i];
  }
  return squares;
}

// Signs [3, dp] and row scales [rows] of one hadamard block.
void draw_hadamard_block(const RandomKey& key, const ProjectionOptions& options,
                         const ProjectionBlock& block, std::int8_t* signs, double* row_scale) {
  const auto dp = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(block.dim)));
  const auto bits = projection_stream(key, ProjectionStream::kSign);
  const std::int64_t first_bit = block.first_row * kFactors;  // first_row is a multiple of dp
  const auto d = static_cast<double>(block.dim), whole = static_cast<double>(dp);
  draw_signs(bits, first_bit, kFactors * dp, 0, signs);
  if (options.norm == ProjectionNorm::kChi) {
    draw_chi_norms(key, block, dp, row_scale);
    for (std::int64_t r = 0; r < block.rows; ++r) row_scale[r] /= whole * std::sqrt(whole);
    return;
  }
  std::vector<double> squares(static_cast<std::size_t>(dp), whole * whole * whole);
  for (int attempt = 0; block.dim < dp && attempt < kMaxAttempts; ++attempt) {
    draw_signs(bits, first_bit, kFactors * dp, attempt, signs);
    squares = cut_row_squares(signs, dp, block.dim);
    // In a few dimensions the cut may leave a row of zeros, which no factor brings to sqrt(d).
    if (*std::min_element(squares.begin(), squares.end()) > 0.0) break;
  }
  for (std::int64_t r = 0; r < block.rows; ++r) {
    row_scale[r] = std::sqrt(d / squares[static_cast<std::size_t>(r)]);
  }
}

// A uniform order of 0 ... dim - 1: sorted by random 64-bit keys.
void draw_order(const RandomStream& bits, std::int64_t first, std::int64_t dim, std::int64_t* out) {
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(dim));
  for (std::int64_t i = 0; i < dim; ++i) {
    const auto words = bits.block(static_cast<std::uint32_t>((first + i) / 2));
    const std::size_t half = (first + i) % 2 == 0 ? 0 : 2;
    keys[static_cast<std::size_t>(i)] =
        static_cast<std::uint64_t>(words[half + 1]) << 32 | words[half];
  }
  std::iota(out, out + dim, std::int64_t{0});
  std::stable_sort(out, out + dim, [&](std::int64_t a, std::int64_t b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
}

// Uniform angles as directions of normal pairs: no sine, no cosine.
void draw_angles(const RandomStream& normals, std::int64_t first, std::int64_t count,
                 double* cosine, double* sine) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [a, b] = normals.normal_pair(static_cast<std::uint32_t>(first + i));
    const double norm = std::sqrt(a * a + b * b);
    cosine[i] = a / norm;
    sine[i] = b / norm;
  }
}

using BlockTask = std::function<void(std::int64_t head, std::int64_t block)>;

void for_each_block(std::int64_t heads, std::int64_t blocks, const BlockTask& task) {
  at::parallel_for(0, heads * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) task(i / blocks, i % blocks);
  });
}

StructuredProjection draw_hadamard(std::int64_t num_features, std::int64_t dim,
                                   const ProjectionOptions& options) {
  const auto dp = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(dim)));
  const std::int64_t heads = options.heads.value_or(1), blocks = (num_features + dp - 1) / dp;
  StructuredProjection p{options.kind, dim, {}, {}, {}, {}, {}};
  p.row_scale = at::empty({heads, num_features}, at::kDouble);
  p.signs = at::empty({heads, blocks, kFactors, dp}, at::kChar);
  auto* row_scale = p.row_scale.mutable_data_ptr<double>();
  auto* signs = p.signs.mutable_data_ptr<std::int8_t>();
  for_each_block(heads, blocks, [&](std::int64_t head, std::int64_t b) {
    const ProjectionBlock block{b * dp, std::min(dp, num_features - b * dp), dim};
    draw_hadamard_block(projection_key(options, head), options, block,
                        signs + (head * blocks + b) * kFactors * dp,
                        row_scale + head * num_features + block.first_row);
  });
  return p;
}

StructuredProjection draw_givens(std::int64_t num_features, std::int64_t dim,
                                 const ProjectionOptions& options) {
  const std::int64_t layers = 2 * std::bit_width(static_cast<std::uint64_t>(dim - 1));
  const std::int64_t heads = options.heads.value_or(1), blocks = (num_features + dim - 1) / dim;
  const std::int64_t pairs = dim / 2;
  StructuredProjection p{options.kind, dim, {}, {}, {}, {}, {}};
  p.row_scale = at::full({heads, num_features}, std::sqrt(static_cast<double>(dim)), at::kDouble);
  p.signs = at::empty({heads, blocks, dim}, at::kChar);
  p.permutation = at::empty({heads, blocks, layers, dim}, at::kLong);
  p.cosine = at::empty({heads, blocks, layers, pairs}, at::kDouble);
  p.sine = at::empty({heads, blocks, layers, pairs}, at::kDouble);
  auto* row_scale = p.row_scale.mutable_data_ptr<double>();
  auto* signs = p.signs.mutable_data_ptr<std::int8_t>();
  auto* order = p.permutation.mutable_data_ptr<std::int64_t>();
  auto* cosine = p.cosine.mutable_data_ptr<double>();
  auto* sine = p.sine.mutable_data_ptr<double>();
  for_each_block(heads, blocks, [&](std::int64_t head, std::int64_t b) {
    const RandomKey key = projection_key(options, head);
    const auto stream = [&](ProjectionStream s) { return projection_stream(key, s); };
    const std::int64_t unit = head * blocks + b, first = b * dim;
    draw_signs(stream(ProjectionStream::kSign), first, dim, 0, signs + unit * dim);
    if (options.norm == ProjectionNorm::kChi) {
      draw_chi_norms(key, {first, std::min(dim, num_features - first), dim}, dim,
                     row_scale + head * num_features + first);
    }
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::int64_t own = b * layers + layer, at = unit * layers + layer;
      draw_order(stream(ProjectionStream::kPermutation), own * dim, dim, order + at * dim);
      draw_angles(stream(ProjectionStream::kAngle), own * pairs, pairs, cosine + at * pairs,
                  sine + at * pairs);
    }
  });
  return p;
}

}  // namespace

StructuredProjection draw_structured(std::int64_t num_features, std::int64_t dim,
                                     const ProjectionOptions& options) {
  check_projection("draw_structured", num_features, dim, options);
  const bool hadamard = options.kind == ProjectionKind::kHadamard;
  TORCH_CHECK(hadamard || options.kind == ProjectionKind::kGivens,
              "draw_structured: kind must be hadamard or givens, got ", to_string(options.kind));
  StructuredProjection p = hadamard ? draw_hadamard(num_features, dim, options)
                                    : draw_givens(num_features, dim, options);
  if (options.heads) return p;
  for (Tensor* part : {&p.row_scale, &p.signs, &p.permutation, &p.cosine, &p.sine}) {
    if (part->defined()) *part = part->squeeze(0);
  }
  return p;
}

}  // namespace performer
