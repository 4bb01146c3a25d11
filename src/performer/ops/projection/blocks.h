#pragma once

#include <cstdint>

#include "performer/core/random.h"
#include "performer/ops/projection/projection.h"

namespace performer {

/// The key of one head of a draw.
RandomKey projection_key(const ProjectionOptions& options, std::int64_t head);

/// Purposes of one key. Kinds share them, so that they can be compared at one seed with little
/// noise: the rows of every kind have the norms of the iid rows (hadamard: where D is a power of
/// two), and orthogonal is the QR of the iid rows.
enum class ProjectionStream : std::uint8_t { kGaussian, kSign, kPermutation, kAngle };
RandomStream projection_stream(const RandomKey& key, ProjectionStream purpose);

/// The rows of one block of W; rows and columns of float64 in fixed order, no torch.
struct ProjectionBlock {
  std::int64_t first_row;  // of the block within W
  std::int64_t rows;       // rows wanted, at most dim
  std::int64_t dim;
};

/// iid, orthogonal or simplex rows: out [rows, dim].
void draw_block(const RandomKey& key, const ProjectionOptions& options,
                const ProjectionBlock& block, double* out);

/// chi_degrees row norms from `degrees` normals for each row; out [rows].
void draw_chi_norms(const RandomKey& key, const ProjectionBlock& block, std::int64_t degrees,
                    double* out);

/// Replaces the `rows` columns of a (dim x rows, row r of storage is column r) by those of the Q of
/// its QR decomposition with a positive diagonal of R. For Gaussian input Q is Haar-distributed;
/// with Householder's own signs it is not. O(dim rows^2).
void orthonormalize(double* columns, std::int64_t rows, std::int64_t dim);

}  // namespace performer
