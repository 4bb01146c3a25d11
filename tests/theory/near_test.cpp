// The near field: its sums, exact close by and estimated beyond, are those of exact attention in
// the mean over draws of W. PERFORMER_DRAWS says of how many (default 10,000).
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "performer/ops/favor/attention.h"
#include "performer/ops/projection/oprf.h"
#include "tests/theory/estimators.h"

namespace performer::theory {
namespace {

constexpr std::int64_t kNearDim = 8, kNearFeatures = 8, kNearTokens = 12, kNearBlock = 3;

std::int64_t number_of_draws() {
  const char* text = std::getenv("PERFORMER_DRAWS");
  return text == nullptr ? 10'000 : std::strtoll(text, nullptr, 10);
}

struct NearTokens {
  Tensor x, y, v;  // [L, D], [L, D], [L, Dv + 1]; the last value is 1, so that its sum divides
};

NearTokens some_tokens() {
  at::manual_seed(5);
  const auto normal = [](std::int64_t width) {
    return at::randn({kNearTokens, width}, at::kDouble);
  };
  const Tensor x = normal(kNearDim) * 0.25, y = normal(kNearDim) * 0.25;  // |x + y|^2 is about 1
  return {x, y, at::cat({normal(2), at::ones({kNearTokens, 1}, at::kDouble)}, 1)};
}

/// One way to estimate exp(x.y).
struct NearEstimator {
  const char* name;
  FeatureMap map;
  bool fitted = false;  // norm terms as biases of tokens
  bool optimal = false;
};

std::ostream& operator<<(std::ostream& out, const NearEstimator& e) { return out << e.name; }

// Draws as heads, which share the tokens: the sums of each, [draws, L, Dv + 1].
Tensor sums_of(const NearEstimator& e, Causality causality, const NearTokens& t,
               const Tensor& draws) {
  const auto heads = [&](const Tensor& of) {
    return of.expand({1, draws.size(0), kNearTokens, of.size(-1)});
  };
  FavorOptions options;
  options.feature_map = e.map, options.causality = causality;
  options.renormalize = Renormalize::kNo;
  options.scale = 1.0, options.near = kNearBlock;
  if (e.fitted) {
    options.query_bias = -0.5 * t.x.square().sum(-1).unsqueeze(0);
    options.key_bias = -0.5 * t.y.square().sum(-1).unsqueeze(0);
  }
  Tensor W = draws;
  if (e.optimal) {
    std::tie(W, options.bias_q) = oprf(draws, -0.1);
    options.bias_k = options.bias_q;
  }
  return favor_attention(heads(t.x), heads(t.y), heads(t.v), W, options)[0];
}

class NearSums : public testing::TestWithParam<NearEstimator> {};

TEST_P(NearSums, AreThoseOfExactAttentionInTheMean) {
  constexpr std::int64_t kTogether = 5'000;
  constexpr double kBound = 4.0;
  const NearTokens t = some_tokens();
  const std::int64_t count = number_of_draws();
  const Tensor w = draw_many(ProjectionKind::kOrthogonal, ProjectionNorm::kChi,
                             {count, kNearFeatures, kNearDim});
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    const bool causal = causality == Causality::kCausal;
    const Tensor weights = at::matmul(t.x, t.y.transpose(0, 1)).exp();
    const Tensor exact = at::matmul(causal ? weights.tril() : weights, t.v);  // [L, Dv + 1]
    Tensor sum = at::zeros_like(exact), squares = at::zeros_like(exact);
    for (const Tensor& draws : w.split(kTogether)) {
      const Tensor error = sums_of(GetParam(), causality, t, draws) - exact;
      sum += error.sum(0), squares += error.square().sum(0);
    }
    const auto n = static_cast<double>(count);
    const Tensor noise = (squares / n - (sum / n).square()).clamp_min(0).sqrt() / std::sqrt(n);
    const Tensor block = at::arange(kNearTokens, at::kLong).floor_divide(kNearBlock);
    const Tensor distance = block.unsqueeze(1) - block;
    const Tensor has_far = (causal ? distance.gt(1) : distance.abs().gt(1)).any(1);  // [L]
    const Tensor bias = (sum / n).abs();
    const Tensor far_rows = has_far.nonzero().squeeze(1);
    const Tensor deviations = (bias / noise).index_select(0, far_rows);
    RecordProperty(causal ? "deviations, causal" : "deviations, bidirectional",
                   std::to_string(deviations.max().item<double>()));
    EXPECT_LT(deviations.max().item<double>(), kBound) << "causal " << causal;
    EXPECT_LT((noise / exact).select(1, -1).max().item<double>(), 0.01) << "the test sees a bias";
    EXPECT_GT(noise.index_select(0, far_rows).min().item<double>(), 0) << "features take part";
    const Tensor near_rows = has_far.logical_not().nonzero().squeeze(1);
    EXPECT_EQ(near_rows.numel(), causal ? 2 * kNearBlock : 0);
    if (near_rows.numel() > 0) {
      EXPECT_LT(bias.index_select(0, near_rows).max().item<double>(), 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, NearSums,
                         testing::Values(NearEstimator{"positive", FeatureMap::kPositive},
                                         NearEstimator{"hyperbolic", FeatureMap::kHyperbolic},
                                         NearEstimator{"trigonometric", FeatureMap::kTrigonometric},
                                         NearEstimator{"fitted", FeatureMap::kLoglinear, true},
                                         NearEstimator{"optimal", FeatureMap::kPositive, false,
                                                       true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace performer::theory
