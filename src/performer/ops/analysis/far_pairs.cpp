#include "performer/ops/analysis/far_pairs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace performer {
namespace {

// The first real token of each row, its length where there is none: int64 [B].
Tensor first_real(const Tensor& k, const FavorOptions& options) {
  Tensor real = at::ones({k.size(0), k.size(2)}, k.options().dtype(at::kBool));
  if (options.key_mask.defined()) real = real.logical_and(options.key_mask);
  if (options.key_bias.defined()) {
    const Tensor seen = options.key_bias.ne(-std::numeric_limits<double>::infinity());
    real = real.logical_and(seen.dim() == 3 ? seen.any(1) : seen);
  }
  return at::where(real.any(1), real.to(at::kInt).argmax(1), k.size(2));
}

}  // namespace

FarPairs::FarPairs(const Tensor& k, const FavorOptions& options)
    : near_(options.near),
      length_(k.size(2)),
      causal_(options.causality == Causality::kCausal),
      origins_(static_cast<std::size_t>(k.size(0)), 0) {
  if (near_ == 0) return;
  origin_ = at::zeros({k.size(0), 1, 1, 1}, k.options().dtype(at::kLong));
  if (!options.key_mask.defined() && !options.key_bias.defined()) return;
  const Tensor first = first_real(k, options);
  origin_ = first.view({-1, 1, 1, 1});
  const Tensor host = first.to(at::kCPU).contiguous();
  std::copy_n(host.const_data_ptr<std::int64_t>(), host.numel(), origins_.begin());
}

Tensor FarPairs::far(const Tensor& positions) const {
  if (near_ == 0) return at::ones({1, 1, 1, 1}, positions.options().dtype(at::kBool));
  const auto block = [&](const Tensor& t) { return (t - origin_).floor_divide(near_); };
  const Tensor queries = block(positions.view({1, 1, -1, 1}));
  const Tensor keys = block(at::arange(length_, positions.options()).view({1, 1, 1, -1}));
  return (queries - keys).abs().gt(1).logical_and(in_sequence(positions));
}

Tensor FarPairs::in_sequence(const Tensor& positions) const {
  if (near_ == 0) return at::ones({1, 1, 1, 1}, positions.options().dtype(at::kBool));
  return positions.view({1, 1, -1, 1}).ge(origin_);
}

FarPairs::Range FarPairs::range(std::int64_t n, std::int64_t row) const {
  const std::int64_t origin = origins_[static_cast<std::size_t>(n)];
  if (row < origin) return {0, length_};
  const std::int64_t block = (row - origin) / near_;
  const std::int64_t before = block > 1 ? origin + (block - 1) * near_ : 0;
  return {before, causal_ ? length_ : std::min(length_, origin + (block + 2) * near_)};
}

}  // namespace performer
