#include "performer/models/random_matrix.h"

#include <ATen/ATen.h>

#include "performer/core/random.h"

namespace performer::models {
namespace {
constexpr std::uint8_t kMatrix = 33;  // streams below are those of projections
}  // namespace

at::Tensor random_matrix(std::int64_t rows, std::int64_t columns, const MatrixKey& key) {
  const RandomStream stream(
      {static_cast<std::uint64_t>(key.config.seed), static_cast<std::uint32_t>(key.layer), 0,
       static_cast<std::uint32_t>(key.draw)},
      kMatrix);
  const at::Tensor normals = at::empty({rows, columns}, at::kDouble);
  stream.normals(0, normals.numel(), normals.mutable_data_ptr<double>());
  return normals.to(at::kFloat);
}

}  // namespace performer::models
