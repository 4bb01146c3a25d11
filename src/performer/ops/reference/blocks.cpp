#include <ATen/ATen.h>

#include <algorithm>

#include "performer/ops/reference/parts.h"

namespace performer::reference {
namespace {

constexpr std::int64_t kBlockElements = std::int64_t{1} << 22;

Keys first_keys(Keys keys, std::int64_t count) {
  for (Tensor* t : {&keys.features.value, &keys.features.exponent, &keys.features.token, &keys.v}) {
    *t = t->slice(2, 0, count);
  }
  return keys;
}

}  // namespace

Attention concatenate(const std::vector<Attention>& parts) {
  const auto join = [&](Tensor Attention::*field) {
    std::vector<Tensor> pieces;
    pieces.reserve(parts.size());
    for (const auto& part : parts) pieces.push_back(part.*field);
    return at::cat(pieces, 2);
  };
  return {join(&Attention::out), join(&Attention::numerator), join(&Attention::denominator),
          join(&Attention::numerator_terms), join(&Attention::denominator_terms)};
}

Attention attend_by_blocks(const Features& queries, const Keys& keys, const Tensor& rows,
                           const Evaluation& e, double log_constant) {
  const Tensor& features = queries.value;  // [B, H, R, M']
  const bool causal = e.options.causality == Causality::kCausal;
  // Causal rows see different keys, so each is a block of its own.
  const auto per_row =
      features.size(0) * features.size(1) * (keys.v.size(2) + 1) * features.size(-1);
  const auto block =
      causal ? 1 : std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, per_row));
  std::vector<Attention> parts;
  for (std::int64_t begin = 0; begin == 0 || begin < rows.numel(); begin += block) {
    const auto end = std::min(begin + block, rows.numel());
    const auto of_block = [&](const Tensor& t) { return t.slice(2, begin, end); };
    const Features row{of_block(queries.value), of_block(queries.exponent),
                       of_block(queries.token)};
    const bool cut = causal && end > begin;
    parts.push_back(attend(row, cut ? first_keys(keys, rows[begin].item<std::int64_t>() + 1) : keys,
                           e, log_constant));
  }
  return concatenate(parts);
}

}  // namespace performer::reference
