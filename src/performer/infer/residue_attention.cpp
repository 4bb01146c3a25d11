#include "performer/infer/residue_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "performer/core/random.h"

namespace performer::infer {

// clang-format off
constinit const ResidueMatrix kBlosum62 = {{
    {{4, 0, -2, -1, -2, 0, -2, -1, -1, -1, -1, -2, -1, -1, -1, 1, 0, 0, -3, -2}},  // A
    {{0, 9, -3, -4, -2, -3, -3, -1, -3, -1, -1, -3, -3, -3, -3, -1, -1, -1, -2, -2}},  // C
    {{-2, -3, 6, 2, -3, -1, -1, -3, -1, -4, -3, 1, -1, 0, -2, 0, -1, -3, -4, -3}},  // D
    {{-1, -4, 2, 5, -3, -2, 0, -3, 1, -3, -2, 0, -1, 2, 0, 0, -1, -2, -3, -2}},  // E
    {{-2, -2, -3, -3, 6, -3, -1, 0, -3, 0, 0, -3, -4, -3, -3, -2, -2, -1, 1, 3}},  // F
    {{0, -3, -1, -2, -3, 6, -2, -4, -2, -4, -3, 0, -2, -2, -2, 0, -2, -3, -2, -3}},  // G
    {{-2, -3, -1, 0, -1, -2, 8, -3, -1, -3, -2, 1, -2, 0, 0, -1, -2, -3, -2, 2}},  // H
    {{-1, -1, -3, -3, 0, -4, -3, 4, -3, 2, 1, -3, -3, -3, -3, -2, -1, 3, -3, -1}},  // I
    {{-1, -3, -1, 1, -3, -2, -1, -3, 5, -2, -1, 0, -1, 1, 2, 0, -1, -2, -3, -2}},  // K
    {{-1, -1, -4, -3, 0, -4, -3, 2, -2, 4, 2, -3, -3, -2, -2, -2, -1, 1, -2, -1}},  // L
    {{-1, -1, -3, -2, 0, -3, -2, 1, -1, 2, 5, -2, -2, 0, -1, -1, -1, 1, -1, -1}},  // M
    {{-2, -3, 1, 0, -3, 0, 1, -3, 0, -3, -2, 6, -2, 0, 0, 1, 0, -3, -4, -2}},  // N
    {{-1, -3, -1, -1, -4, -2, -2, -3, -1, -3, -2, -2, 7, -1, -2, -1, -1, -2, -4, -3}},  // P
    {{-1, -3, 0, 2, -3, -2, 0, -3, 1, -2, 0, 0, -1, 5, 1, 0, -1, -2, -2, -1}},  // Q
    {{-1, -3, -2, 0, -3, -2, 0, -3, 2, -2, -1, 0, -2, 1, 5, -1, -1, -3, -3, -2}},  // R
    {{1, -1, 0, 0, -2, 0, -1, -2, 0, -2, -1, 1, -1, 0, -1, 4, 1, -2, -3, -2}},  // S
    {{0, -1, -1, -1, -2, -2, -2, -1, -1, -1, -1, 0, -1, -1, -1, 1, 5, 0, -2, -2}},  // T
    {{0, -1, -3, -2, -1, -3, -3, 3, -2, 1, 1, -3, -2, -2, -3, -2, 0, 4, -3, -1}},  // V
    {{-3, -2, -4, -3, 1, -2, -2, -3, -3, -2, -1, -4, -4, -2, -3, -3, -2, -3, 11, 2}},  // W
    {{-2, -2, -3, -2, 3, -3, 2, -1, -2, -1, -1, -2, -3, -1, -2, -2, -2, -1, 2, 7}},  // Y
}};
// clang-format on

namespace {

constexpr std::int64_t kKinds = kStandardResidues;
constexpr std::uint8_t kShuffleStream = 0x5b;

using Order = std::vector<std::int64_t>;

struct Pair {
  std::int64_t a, b;
  double weight;
};

double correlation(const std::vector<Pair>& pairs, const Order& names) {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (const auto& [a, b, weight] : pairs) {
    const auto first = static_cast<std::size_t>(names[static_cast<std::size_t>(a)]);
    const auto second = static_cast<std::size_t>(names[static_cast<std::size_t>(b)]);
    const double score = kBlosum62.at(first).at(second);
    n += 1, x += weight, y += score;
    xx += weight * weight, yy += score * score, xy += weight * score;
  }
  const double spread = (xx - x * x / n) * (yy - y * y / n);
  return spread > 0 ? (xy - x * y / n) / std::sqrt(spread)
                    : std::numeric_limits<double>::quiet_NaN();
}

// Fisher and Yates; the bias of a 32-bit remainder is beyond what a p-value shows.
void shuffle(Order& names, const RandomStream& random, std::uint32_t number) {
  for (std::size_t i = names.size() - 1; i > 0; --i) {
    const auto index = number * static_cast<std::uint32_t>(kKinds) + static_cast<std::uint32_t>(i);
    std::swap(names[i], names[random.block(index)[0] % (i + 1)]);
  }
}

}  // namespace

ResidueAttention::ResidueAttention()
    : weights_(at::zeros({kKinds, kKinds}, at::kDouble)), expected_(at::zeros_like(weights_)) {}

void ResidueAttention::add(const at::Tensor& by_kind, const at::Tensor& kinds, bool causal) {
  const auto length = kinds.size(0);
  const at::Tensor is = kinds.unsqueeze(1).eq(at::arange(kKinds, at::kLong)).to(at::kDouble);
  const at::Tensor count = at::arange(1, length + 1, at::kDouble).unsqueeze(1);
  const at::Tensor seen =
      causal ? is.cumsum(0) / count : (is.sum(0, true) / static_cast<double>(length)).expand_as(is);
  weights_ += by_kind.sum(0);
  expected_ += at::matmul(is.t(), seen) * static_cast<double>(by_kind.size(0));
}

at::Tensor ResidueAttention::ratios() const { return weights_ / expected_; }

Agreement compare_with_blosum62(const at::Tensor& ratios, std::int64_t permutations,
                                std::uint64_t seed) {
  std::vector<Pair> pairs;
  for (std::int64_t a = 0; a < kKinds; ++a) {
    for (std::int64_t b = a + 1; b < kKinds; ++b) {
      const double weight = (ratios[a][b].item<double>() + ratios[b][a].item<double>()) / 2;
      if (std::isfinite(weight)) pairs.push_back({a, b, weight});
    }
  }
  Order names(static_cast<std::size_t>(kKinds));
  std::iota(names.begin(), names.end(), std::int64_t{0});
  Agreement found;
  found.pairs = std::ssize(pairs);
  found.correlation =
      pairs.empty() ? std::numeric_limits<double>::quiet_NaN() : correlation(pairs, names);
  if (std::isnan(found.correlation)) return found;
  const RandomStream random({.seed = seed}, kShuffleStream);
  std::int64_t as_high = 0;
  for (std::int64_t i = 0; i < permutations; ++i) {
    shuffle(names, random, static_cast<std::uint32_t>(i));
    if (correlation(pairs, names) >= found.correlation) ++as_high;
  }
  found.p_value = static_cast<double>(1 + as_high) / static_cast<double>(1 + permutations);
  return found;
}

}  // namespace performer::infer
