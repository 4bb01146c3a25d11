#include "performer/ops/backends/composed/exact_rows.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/chunk.h"
#include "performer/ops/backends/composed/pow2.h"

namespace performer::composed {
namespace {

RowSums exact_row(const ChunkInputs& in, std::int64_t row) {
  const Tensor reached = in.keys.log2.narrow(2, 0, row + 1).amax(2);      // [B, Hs, M']
  const Tensor scale = at::maximum(in.state.log2, reached).unsqueeze(2);  // [B, Hs, 1, M']
  const Tensor q = in.queries.log2.select(3, row);                        // [B, Hs, G, M']
  const Tensor log2 = round_up_log2((q + scale).amax(-1));                // [B, Hs, G]
  const Tensor weights = row_weights(in.queries, in.keys, log2, row).sum(-1);
  const Tensor from_state = at::exp2(q + (in.state.log2.unsqueeze(2) - log2.unsqueeze(-1)));
  return {
      at::matmul(weights, in.values.narrow(2, 0, row + 1)) + at::matmul(from_state, in.state.sum),
      log2,
      {}};
}

}  // namespace

std::vector<std::int64_t> marked_rows(const Tensor& weak) {
  const Tensor rows = weak.flatten(0, 2).any(0).nonzero().flatten().to(at::kCPU).contiguous();
  const auto* first = rows.const_data_ptr<std::int64_t>();
  return {first, first + rows.numel()};
}

Tensor row_weights(const FeatureBlock& queries, const KeyBlock& keys, const Tensor& log2,
                   std::int64_t row) {
  const Tensor q = queries.log2.select(3, row);                            // [B, Hs, G, M']
  const Tensor k = keys.features.log2.narrow(2, 0, row + 1).unsqueeze(2);  // [B, Hs, 1, i+1, M']
  // The two large terms cancel first: q keeps its fraction.
  return at::exp2(q.unsqueeze(3) + (k - log2.unsqueeze(-1).unsqueeze(-1)));
}

void replace_exact_rows(RowSums& rows, const Tensor& weak, const ChunkInputs& in) {
  for (const auto row : marked_rows(weak)) {
    const RowSums exact = exact_row(in, row);
    const Tensor replace = weak.select(3, row);  // [B, Hs, G]
    Tensor sums = rows.sums.select(3, row);
    Tensor log2 = rows.log2.select(3, row);
    sums.copy_(at::where(replace.unsqueeze(-1), exact.sums, sums));
    log2.copy_(at::where(replace, exact.log2, log2));
  }
}

}  // namespace performer::composed
