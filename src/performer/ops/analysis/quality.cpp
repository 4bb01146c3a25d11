#include "performer/ops/analysis/quality.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "performer/ops/analysis/far_pairs.h"
#include "performer/ops/analysis/quality_estimate.h"
#include "performer/ops/checks.h"
#include "performer/ops/exact/softmax_rows.h"
#include "performer/ops/favor/arguments.h"

namespace performer {
namespace {

constexpr const char* kQuality = "approximation_quality";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::uint64_t mix(std::uint64_t z) {  // splitmix64
  z += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// One row from each of `samples` equal parts of the sequence: increasing, without repetition.
std::vector<std::int64_t> sample_rows(std::int64_t length, std::int64_t samples,
                                      std::uint64_t seed) {
  const std::int64_t count = std::min(length, samples);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    // floor(length i / count), the product kept small.
    const auto part = [&](std::int64_t n) {
      return length / count * n + length % count * n / count;
    };
    const std::int64_t first = part(i), next = part(i + 1);
    const std::uint64_t random = mix(mix(seed) + static_cast<std::uint64_t>(i));
    rows.push_back(first +
                   static_cast<std::int64_t>(random % static_cast<std::uint64_t>(next - first)));
  }
  return rows;
}

// By operators, so that tracers can follow.
Tensor to_tensor(const std::vector<std::int64_t>& rows, const Tensor& like) {
  std::vector<Tensor> parts;
  parts.reserve(rows.size());
  for (const std::int64_t row : rows) {
    parts.push_back(at::full({1}, row, like.options().dtype(at::kLong)));
  }
  return at::cat(parts);
}

void check_quality(const Tensor& q, const Tensor& k, const Tensor& v,
                   const QualityOptions& options) {
  check_defined(kQuality, {"v", v});
  check_heads(kQuality, q, k, v);
  TORCH_CHECK(options.samples > 0, kQuality, ": samples must be positive, got ", options.samples);
  TORCH_CHECK(q.sym_numel() > 0 && v.sym_numel() > 0, kQuality,
              ": q, k and v must not be empty, got ", q.sizes(), ", ", k.sizes(), ", ", v.sizes());
  TORCH_CHECK(!options.favor.cu_seqlens_q.defined() && !options.favor.cu_seqlens_k.defined(),
              kQuality, ": packed sequences are not supported; pass them padded with key_mask");
  TORCH_CHECK(!options.favor.initial_state.defined(), kQuality,
              ": a state holds no separate keys; pass them in k, got an initial_state");
}

// M times the relative variance of one estimate of exp(x.y) (Lemma 2), NaN without a closed form.
Tensor unit_variance(const FavorOptions& options, const Tensor& sum, const Tensor& difference) {
  const bool plain =
      !options.bias_q.defined() && !options.bias_k.defined() && !options.projection_k.defined();
  if (plain && options.feature_map == FeatureMap::kPositive) return sum.expm1();
  if (plain && options.feature_map == FeatureMap::kHyperbolic) {
    return -0.5 * sum.expm1() * sum.neg().expm1();
  }
  if (plain && options.feature_map == FeatureMap::kTrigonometric) {
    return -0.5 * difference.expm1() * difference.neg().expm1();
  }
  return at::full_like(sum, kNaN);
}

// Sums over the sampled rows, per head: [H].
struct Sums {
  Tensor pairs, squared_sum, variance, norm, error, uniform_error;

  void add(const Sums& other) {
    const auto add_to = [](Tensor& total, const Tensor& part) {
      total = total.defined() ? total + part : part;
    };
    add_to(pairs, other.pairs);
    add_to(squared_sum, other.squared_sum);
    add_to(variance, other.variance);
    add_to(norm, other.norm);
    add_to(error, other.error);
    add_to(uniform_error, other.uniform_error);
  }
};

struct RowBlock {
  Tensor q;          // [B, H, R, D]
  Tensor positions;  // [R]
  Tensor out;        // [B, H, R, Dv]: what favor_attention gives
};

Sums compare_block(const SoftmaxRows& exact, const Tensor& values, const RowBlock& block,
                   const FarPairs& pairs, const FavorOptions& options) {
  const auto& [q, positions, out] = block;
  const Tensor products = exact.products(q);         // [B, H, R, Lk]
  const Tensor real = pairs.in_sequence(positions);  // rows before it are padding
  const Tensor seen = exact.allowed(positions).logical_and(real).expand_as(products);
  const Tensor far = seen.logical_and(pairs.far(positions));
  const Tensor norms =
      exact.scale() * (q.square().sum(-1, true) + exact.keys().square().sum(-1).unsqueeze(2));
  const Tensor sum = (norms + 2 * products).clamp_min(0);
  const Tensor difference = (norms - 2 * products).clamp_min(0);
  const auto over_pairs = [&](const Tensor& t) {
    return t.masked_fill(far.logical_not(), 0).sum({0, 2, 3});
  };
  const auto squared = [](const Tensor& t) { return t.square().sum({0, 2, 3}); };
  const Tensor expected = at::matmul(exact.weights(products, positions), values)
                              .masked_fill(real.logical_not(), 0);  // [B, H, R, Dv]
  const Tensor uniform = seen.to(at::kDouble);
  const Tensor average =
      at::matmul(uniform, values) / uniform.sum(-1, /*keepdim=*/true).clamp_min(1);
  return {far.to(at::kDouble).sum({0, 2, 3}),
          over_pairs(sum),
          over_pairs(unit_variance(options, sum, difference)),
          squared(expected),
          squared(out - expected),
          squared(average - expected)};
}

Tensor ratio(const Tensor& error, const Tensor& norm) {
  return (error / norm).sqrt().masked_fill(error == 0, 0);
}

// Without features there is nothing whose error could be predicted.
Tensor predicted_error(const Tensor& unit, const Tensor& W) {
  if (!W.defined()) return unit;
  return W.size(-2) > 0 ? unit / W.size(-2) : at::full_like(unit, kNaN);
}

ExactOptions target_of(const FavorOptions& options) {
  ExactOptions target;
  target.causality = options.causality;
  target.scale = options.scale;
  target.key_mask = options.key_mask;
  if (!options.key_bias.defined()) return target;
  const Tensor bias = options.key_bias.detach();
  const Tensor removed = bias == -std::numeric_limits<double>::infinity();
  const bool fitted = options.feature_map == FeatureMap::kLoglinear;
  target.key_bias = fitted ? at::zeros_like(bias).masked_fill(removed, -INFINITY) : bias;
  return target;
}

}  // namespace

ApproximationQuality approximation_quality(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Tensor& W, const QualityOptions& options) {
  const at::NoGradGuard no_grad;
  check_quality(q, k, v, options);
  const Tensor q64 = q.to(at::kDouble), k64 = k.to(at::kDouble), v64 = v.to(at::kDouble);
  FavorArgs args = favor_args(q64, k64, v64, W, options.favor);
  args.op = kQuality;
  check_favor_args(args);
  const SoftmaxRows exact(kQuality, q64, k64, target_of(options.favor));
  const std::vector<std::int64_t> sampled = sample_rows(q.size(2), options.samples, options.seed);
  const Tensor rows = to_tensor(sampled, q);
  const Tensor queries = q64.index_select(2, rows);  // [B, H, S, D]
  const Tensor W64 = W.defined() ? W.to(at::kDouble) : W;
  const RowEstimates estimates =
      estimate_rows({queries, k64, v64, W64, q64, rows}, sampled, options.favor);
  const FarPairs pairs(k64, options.favor);
  const Tensor values = exact.values(v64);
  Sums sums;
  const auto count = static_cast<std::int64_t>(sampled.size());
  for (std::int64_t start = 0; start < count; start += exact.block_rows()) {
    const std::int64_t size = std::min(exact.block_rows(), count - start);
    sums.add(compare_block(exact, values,
                           {queries.narrow(2, start, size), rows.narrow(0, start, size),
                            estimates.out.narrow(2, start, size)},
                           pairs, options.favor));
  }
  const Tensor unit = sums.variance / sums.pairs;
  return {sums.squared_sum / sums.pairs,
          predicted_error(unit, W),
          estimates.effective_samples.nanmean({0, 2}),
          ratio(sums.error, sums.norm),
          ratio(sums.uniform_error, sums.norm),
          (unit / kTargetVariance).ceil().clamp_min(1)};
}

}  // namespace performer
