#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "performer/ops/backends/composed/dense_call.h"

namespace performer::composed {

struct RowSums;

struct ChunkInputs {
  const FeatureBlock& queries;
  const KeyBlock& keys;
  const Tensor& values;  // [B, Hs, C, Dv + 1], finite
  const ScaledSum& state;
};

/// Recomputes the rows marked in `weak` (bool [B, Hs, G, C]) with one scale per feature,
///   c_ir = max of the state's scale and those of the keys j <= i,
/// adding the exponents of query and key before the exponential: exact at any norm, O(C M') per
/// row.
void replace_exact_rows(RowSums& rows, const Tensor& weak, const ChunkInputs& in);

/// The rows i that are marked anywhere in `weak`, ascending.
std::vector<std::int64_t> marked_rows(const Tensor& weak);

/// phi(q_i) phi(k_j) 2^-log2_i for row i and all j <= i, feature by feature: [B, Hs, G, i + 1, M'].
Tensor row_weights(const FeatureBlock& queries, const KeyBlock& keys, const Tensor& log2,
                   std::int64_t row);

}  // namespace performer::composed
