#pragma once

#include <ATen/core/Tensor.h>

#include "performer/ops/backends/composed/chunk.h"
#include "performer/ops/backends/composed/dense_call.h"

namespace performer::composed {

/// Where a pass over dense sequences writes: views of the operator's outputs.
struct ForwardOutputs {
  Tensor out;             // [B, H, Lq, Dv]
  Tensor row_sum;         // [B, H, Lq] denominators, true value row_sum 2^row_log2_scale
  Tensor row_log2_scale;  // [B, H, Lq] int32
  Tensor kv;              // [B, Hs, M', Dv]
  Tensor normalizer;      // [B, Hs, M']
  Tensor log2_scale;      // [B, Hs, M'] int32
  Tensor near_keys{}, near_values{}, near_bias{}, near_position{};  // FavorState's
};

/// Numerator over denominator, 0 over 0 being 0: [B, Hs, G, C, Dv]. Without renormalisation, the
/// numerator.
Tensor divide_rows(const DenseCall& call, const RowSums& rows);

void forward(const DenseCall& call, const ForwardOutputs& outputs);

}  // namespace performer::composed
