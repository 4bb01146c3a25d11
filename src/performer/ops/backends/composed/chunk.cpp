#include "performer/ops/backends/composed/chunk.h"

#include <ATen/ATen.h>

#include "performer/ops/backends/composed/exact_rows.h"
#include "performer/ops/backends/composed/pow2.h"
#include "performer/ops/favor/state.h"

namespace performer::composed {
namespace {

// A product q_hat . k_hat loses terms below 2^-126 each; a row whose denominator keeps 2^-60 of its
// scale cannot notice. Others are summed feature by feature with their own scales.
constexpr double kRowGuard = 0x1p-60;

// The scales of the first real key of each head: [B, Hs, 1|M'].
Tensor first_key_log2(const KeyBlock& keys) {
  if (!keys.mask.defined()) return keys.log2.select(2, 0);
  const Tensor first = keys.mask.to(at::kInt).argmax(2);  // [B, 1|Hs]
  const auto shape = keys.log2.sizes();
  const Tensor index = first.unsqueeze(-1).unsqueeze(-1).expand({shape[0], shape[1], 1, shape[3]});
  return keys.log2.gather(2, index).squeeze(2);
}

// Non-finite values of v reach the rows from their own on, in their own column, and no earlier row.
Tensor add_nonfinite(const Tensor& sums, const Tensor& values) {
  const Tensor nonfinite = values.masked_fill(at::isfinite(values), 0).cumsum(2).unsqueeze(2);
  return at::where(nonfinite.ne(0), sums + nonfinite, sums);
}

}  // namespace

ChunkPair::ChunkPair(const FeatureBlock& queries, const KeyBlock& keys, const Tensor& prior_log2) {
  const Tensor reference =
      at::where(prior_log2.gt(kReached), prior_log2, first_key_log2(keys));  // [B, Hs, M']
  a = (keys.log2 - reference.unsqueeze(2)).amax(-1);
  if (keys.mask.defined()) a = a.masked_fill(keys.mask.logical_not(), kEmptyLog2Scale);
  prefix = std::get<0>(a.cummax(2));
  k_shift = -reference.unsqueeze(2) - a.unsqueeze(-1);
  k_hat = keys.features.scaled(k_shift);

  const Tensor q_reference = reference.unsqueeze(2).unsqueeze(2);  // [B, Hs, 1, 1, M']
  b = round_up_log2((queries.bound() + q_reference).amax(-1));
  q_shift = q_reference - b.unsqueeze(-1);
  q_hat = queries.scaled(q_shift);
}

Tensor ChunkPair::products() const {
  return unfold_group(at::matmul(fold_group(q_hat), k_hat.transpose(-1, -2)), b.size(2));
}

RowSums attend_chunk(const FeatureBlock& queries, const KeyBlock& keys, const ScaledSum& state) {
  const ChunkPair pair(queries, keys, state.log2);
  const auto length = keys.values.size(2);
  // h_i: the largest scale among the state (0, relative to itself) and the keys up to i.
  const Tensor state_log2 = at::where(state.log2.gt(kReached).any(-1, /*keepdim=*/true), 0.0,
                                      static_cast<double>(kEmptyLog2Scale))
                                .to(pair.a.scalar_type());  // [B, Hs, 1]
  const Tensor h = at::maximum(pair.prefix, state_log2);    // [B, Hs, C]
  const Tensor decay = exact_exp2(pair.a.unsqueeze(2) - h.unsqueeze(3)).unsqueeze(2);
  const Tensor scores = at::where(causal_mask(length, pair.a.device()), pair.products() * decay,
                                  at::zeros({}, pair.a.options()));  // [B, Hs, G, C, C]

  const bool finite = at::isfinite(keys.values).all().item<bool>();
  const Tensor values =
      finite ? keys.values : keys.values.masked_fill(at::isfinite(keys.values).logical_not(), 0);
  const auto group = pair.b.size(2);
  const Tensor from_chunk = unfold_group(at::matmul(fold_group(scores), values), group);
  const Tensor from_state = unfold_group(at::matmul(fold_group(pair.q_hat), state.sum), group);
  const Tensor state_decay = exact_exp2(at::clamp_max(-h, 0)).unsqueeze(2).unsqueeze(-1);
  RowSums rows{from_chunk + from_state * state_decay, pair.b + h.unsqueeze(2),
               h.gt(kReached).unsqueeze(2)};

  if (queries.log2.defined()) {
    const Tensor weak = rows.sums.select(-1, -1).lt(kRowGuard).logical_and(rows.reached);
    if (weak.any().item<bool>()) replace_exact_rows(rows, weak, {queries, keys, values, state});
  }
  if (!finite) rows.sums = add_nonfinite(rows.sums, keys.values);
  return rows;
}

RowSums attend_state(const FeatureBlock& queries, const ScaledSum& state) {
  const Tensor scale = state.log2.unsqueeze(2).unsqueeze(2);  // [B, Hs, 1, 1, M']
  const Tensor log2 = round_up_log2((queries.bound() + scale).amax(-1));
  const Tensor weights = queries.scaled(scale - log2.unsqueeze(-1));
  return {unfold_group(at::matmul(fold_group(weights), state.sum), log2.size(2)), log2,
          state.log2.gt(kReached).any(-1).unsqueeze(-1).unsqueeze(-1)};
}

Tensor causal_mask(std::int64_t length, at::Device device) {
  return at::ones({length, length}, at::TensorOptions(device).dtype(at::kBool)).tril();
}

Tensor fold_group(const Tensor& t) { return t.flatten(2, 3); }

Tensor unfold_group(const Tensor& t, std::int64_t group) {
  return t.unflatten(2, {group, t.size(2) / group});
}

}  // namespace performer::composed
