#include <ATen/ATen.h>

#include <algorithm>

#include "performer/ops/reference/parts.h"

namespace performer::reference {
namespace {

constexpr std::int64_t kBlockElements = std::int64_t{1} << 22;

}  // namespace

Features rows_of(const Features& x, std::int64_t begin, std::int64_t end) {
  const auto part = [&](const Tensor& t) { return t.slice(2, begin, end); };
  return {part(x.value), part(x.exponent), part(x.token)};
}

Keys take_keys(Keys keys, const Tensor& index) {
  Features& f = keys.features;
  for (Tensor* t : {&f.value, &f.exponent, &f.token, &keys.y, &keys.bias, &keys.v}) {
    *t = t->index_select(2, index.to(t->device()));
  }
  return keys;
}

Attention concatenate(const std::vector<Attention>& parts, std::int64_t dim) {
  const auto join = [&](Tensor Attention::*field) {
    std::vector<Tensor> pieces;
    pieces.reserve(parts.size());
    for (const auto& part : parts) pieces.push_back(part.*field);
    return at::cat(pieces, dim);
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
    const bool cut = causal && end > begin;
    const auto count = cut ? rows[begin].item<std::int64_t>() + 1 : keys.v.size(2);
    parts.push_back(attend(rows_of(queries, begin, end),
                           take_keys(keys, at::arange(count, at::kLong)), {}, e, log_constant));
  }
  return concatenate(parts);
}

}  // namespace performer::reference
