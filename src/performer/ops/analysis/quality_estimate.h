#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "performer/ops/analysis/far_pairs.h"
#include "performer/ops/favor/attention.h"

namespace performer {

struct EstimateInputs {
  Tensor q;  // [B, H, S, D]: the sampled queries only
  Tensor k, v, W;
  Tensor every_q,
      positions;  // [B, H, Lq, D], int64 [S]: a near field needs queries in their places
};

struct RowEstimates {
  Tensor out;                // [B, H, S, Dv]
  Tensor effective_samples;  // [B, H, S]; NaN for a row without keys that features stand for
};

/// favor_attention at the increasing positions `rows` of the queries, with the effective sample
/// size of each (ApproximationQuality). O(Lk M' (D + Dv)) also when causal: the keys between two
/// sampled rows are folded into a state once. With a near field the same for the keys far from them.
RowEstimates estimate_rows(const EstimateInputs& in, const std::vector<std::int64_t>& rows,
                           const FavorOptions& options);

}  // namespace performer
