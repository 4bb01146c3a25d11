#include "performer/ops/projection/blocks.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace performer {
namespace {

// Sums in four lanes: an order of additions that the source fixes and that still runs fast.
double dot(const double* a, const double* b, std::int64_t n) {
  double lane[4] = {0.0, 0.0, 0.0, 0.0};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int l = 0; l < 4; ++l) lane[l] += a[i + l] * b[i + l];
  }
  for (int l = 0; i < n; ++i, ++l) lane[l] += a[i] * b[i];
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// x -= beta v (v . x), the reflection I - beta v v^T.
void reflect(const double* v, double beta, double* x, std::int64_t n) {
  const double amount = beta * dot(v, x, n);
  for (std::int64_t i = 0; i < n; ++i) x[i] -= amount * v[i];
}

// The d corners of a regular simplex about the origin lie in d - 1 dimensions; in coordinates
// (Reid et al., "Simplex random features", 2023), with ones = (1, ..., 1, 0):
//   s_i = sqrt(d/(d-1)) e_i - (sqrt(d)+1)/(d-1)^(3/2) ones  (i < d-1),   s_(d-1) = ones/sqrt(d-1).
// Row i of the result is s_i^T R for the rotation R in `rows` [dim, dim].
void combine_to_simplex(double* rows, std::int64_t dim) {
  if (dim == 1) return;
  const auto d = static_cast<double>(dim);
  std::vector<double> sum(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t r = 0; r + 1 < dim; ++r) {
    for (std::int64_t i = 0; i < dim; ++i) sum[static_cast<std::size_t>(i)] += rows[r * dim + i];
  }
  const double own = std::sqrt(d / (d - 1.0));
  const double last = 1.0 / std::sqrt(d - 1.0);
  const double common = (std::sqrt(d) + 1.0) / (d - 1.0) * last;
  for (std::int64_t r = 0; r < dim; ++r) {
    double* row = rows + r * dim;
    for (std::int64_t i = 0; i < dim; ++i) {
      const double s = sum[static_cast<std::size_t>(i)];
      row[i] = r + 1 < dim ? own * row[i] - common * s : last * s;
    }
  }
}

}  // namespace

RandomStream projection_stream(const RandomKey& key, ProjectionStream purpose) {
  return {key, static_cast<std::uint8_t>(purpose)};
}

void orthonormalize(double* columns, std::int64_t rows, std::int64_t dim) {
  std::vector<double> beta(static_cast<std::size_t>(rows)), sign(beta), reflector;
  const auto at = [&](std::int64_t r) { return columns + r * dim; };
  // Column k becomes sign_k |x| e_k by the reflection along v = x - sign_k |x| e_k, kept in place;
  // sign_k = -sign(x_k) avoids cancellation and is the sign of R_kk.
  for (std::int64_t k = 0; k < rows; ++k) {
    double* v = at(k) + k;
    const std::int64_t n = dim - k;
    const double norm = std::sqrt(dot(v, v, n));
    const auto slot = static_cast<std::size_t>(k);
    sign[slot] = v[0] > 0.0 ? -1.0 : 1.0;
    beta[slot] = norm > 0.0 ? 1.0 / (norm * (norm + std::abs(v[0]))) : 0.0;
    v[0] -= sign[slot] * norm;
    for (std::int64_t j = k + 1; j < rows; ++j) reflect(v, beta[slot], at(j) + k, n);
  }
  // Column j of Q is H_0 ... H_j e_j, times the sign of R_jj; backwards, so that H_k, k < j, are
  // still there.
  for (std::int64_t j = rows; j-- > 0;) {
    reflector.assign(at(j) + j, at(j) + dim);
    std::fill_n(at(j), dim, 0.0);
    at(j)[j] = sign[static_cast<std::size_t>(j)];
    reflect(reflector.data(), beta[static_cast<std::size_t>(j)], at(j) + j, dim - j);
    for (std::int64_t k = j; k-- > 0;) {
      reflect(at(k) + k, beta[static_cast<std::size_t>(k)], at(j) + k, dim - k);
    }
  }
}

void draw_chi_norms(const RandomKey& key, const ProjectionBlock& block, std::int64_t degrees,
                    double* out) {
  const auto normals = projection_stream(key, ProjectionStream::kGaussian);
  std::vector<double> row(static_cast<std::size_t>(degrees));
  for (std::int64_t r = 0; r < block.rows; ++r) {
    normals.normals(static_cast<std::uint64_t>((block.first_row + r) * degrees), degrees,
                    row.data());
    out[r] = std::sqrt(dot(row.data(), row.data(), degrees));
  }
}

void draw_block(const RandomKey& key, const ProjectionOptions& options,
                const ProjectionBlock& block, double* out) {
  const std::int64_t dim = block.dim;
  const bool simplex = options.kind == ProjectionKind::kSimplex;
  // A corner of the simplex needs the whole rotation, also where the block is cut.
  const std::int64_t rows = simplex ? dim : block.rows;
  std::vector<double> work(static_cast<std::size_t>(rows * dim)), norms;
  // Row r of W always takes normals r dim ... (r + 1) dim - 1.
  projection_stream(key, ProjectionStream::kGaussian)
      .normals(static_cast<std::uint64_t>(block.first_row * dim), rows * dim, work.data());
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const double* row = work.data() + r * dim;
    norms.push_back(std::sqrt(dot(row, row, dim)));
  }
  // The norms are independent of Q as they must be: a Gaussian's norm is independent of its
  // direction, and Q does not change when columns are scaled.
  const bool iid = options.kind == ProjectionKind::kIid;
  if (!iid) orthonormalize(work.data(), rows, dim);
  if (simplex) combine_to_simplex(work.data(), dim);
  const bool chi = options.norm == ProjectionNorm::kChi;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const double norm = norms[static_cast<std::size_t>(r)];
    const double wanted = chi ? norm : std::sqrt(static_cast<double>(dim));
    const double factor = iid ? (chi ? 1.0 : wanted / norm) : wanted;
    for (std::int64_t i = 0; i < dim; ++i) {
      out[r * dim + i] = factor * work[static_cast<std::size_t>(r * dim + i)];
    }
  }
}

}  // namespace performer
