#include "performer/ops/analysis/attention_map.h"
#include "tests/support/message_of.h"
#include "tests/support/oracle.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace performer {
namespace {

using testing::kF64;
using testing::max_error;
using testing::message_of;

constexpr std::int64_t kDim = 5, kRows = 12;

struct MapInputs {
  Tensor q, k, W;
};

MapInputs make_inputs(std::int64_t lq, std::int64_t lk, std::int64_t key_heads = 2) {
  at::manual_seed(4);
  return {at::randn({2, 2, lq, kDim}, kF64), at::randn({2, key_heads, lk, kDim}, kF64),
          at::randn({2, kRows, kDim}, kF64)};
}

FavorOptions causal_options() {
  FavorOptions options;
  options.causality = Causality::kCausal;
  return options;
}

// phi(x) phi(y)^T, each row divided by its sum, from the unstabilised features.
Tensor dense_map(const MapInputs& in, const FavorOptions& options) {
  const bool softmax = is_softmax_map(options.feature_map);
  const double root = std::sqrt(options.scale.value_or(softmax ? 1 / std::sqrt(double{kDim}) : 1));
  std::vector<Tensor> heads;
  for (std::int64_t h = 0; h < in.q.size(1); ++h) {
    const auto phi = [&](const Tensor& x) {
      return features(x.select(1, h) * root, in.W[h], options.feature_map);
    };
    heads.push_back(at::matmul(phi(in.q), phi(in.k).transpose(-2, -1)));  // [B, Lq, Lk]
  }
  Tensor map = at::stack(heads, 1);
  if (options.causality == Causality::kCausal) map = map.tril();
  if (options.key_mask.defined()) map = map * options.key_mask.unsqueeze(1).unsqueeze(1);
  return map / map.sum(-1, true);
}

TEST(AttentionMap, EqualsTheProductOfTheFeaturesForEveryMap) {
  const MapInputs in = make_inputs(9, 9);
  for (const FeatureMap map :
       {FeatureMap::kPositive, FeatureMap::kHyperbolic, FeatureMap::kTrigonometric,
        FeatureMap::kLoglinear, FeatureMap::kRelu, FeatureMap::kElu1}) {
    for (FavorOptions options : {FavorOptions{}, causal_options()}) {
      options.feature_map = map;
      EXPECT_LT(max_error(attention_map(in.q, in.k, in.W, options), dense_map(in, options)), 1e-11)
          << to_string(map);
    }
  }
}

// Near pairs weigh exp(x.y), far ones what their features say; blocks are counted from `origin` on.
Tensor dense_near_map(const MapInputs& in, const FavorOptions& options, std::int64_t origin) {
  const Tensor q = in.q * std::pow(kDim, -0.25), k = in.k * std::pow(kDim, -0.25);
  const double each = options.feature_map == FeatureMap::kLoglinear ? 1 / std::sqrt(kRows) : 1;
  std::vector<Tensor> far;
  for (std::int64_t h = 0; h < q.size(1); ++h) {
    const auto phi = [&](const Tensor& x) {
      return features(x.select(1, h), in.W[h], options.feature_map) * each;
    };
    far.push_back(at::matmul(phi(q), phi(k).transpose(-2, -1)));
  }
  const Tensor block = (at::arange(q.size(2), at::kLong) - origin).floor_divide(options.near);
  const Tensor is_near = (block.unsqueeze(1) - block).abs().le(1);
  Tensor map = at::where(is_near, at::matmul(q, k.transpose(-2, -1)).exp(), at::stack(far, 1));
  if (options.causality == Causality::kCausal) map = map.tril();
  map.narrow(3, 0, origin).zero_(), map.narrow(2, 0, origin).zero_();
  const Tensor sum = map.sum(-1, true);
  return map / at::where(sum == 0, 1.0, sum);
}

TEST(AttentionMap, WithANearFieldEqualsTheWeightsOfBothFields) {
  const MapInputs in = make_inputs(20, 20);
  const Tensor rows = at::tensor({17, 0, 9, 17}, at::kLong),
               columns = at::tensor({3, 19}, at::kInt);
  for (const FeatureMap map : {FeatureMap::kPositive, FeatureMap::kLoglinear,
                               FeatureMap::kHyperbolic, FeatureMap::kTrigonometric}) {
    for (FavorOptions options : {FavorOptions{}, causal_options()}) {
      for (const std::int64_t origin : {0, 4}) {
        options.feature_map = map, options.near = 3;
        options.key_mask = at::ones({2, 20}, at::kBool);
        options.key_mask.narrow(1, 0, origin).fill_(false);
        const Tensor expected = dense_near_map(in, options, origin);
        const Tensor whole = attention_map(in.q, in.k, in.W, options);
        EXPECT_LT(max_error(whole, expected), 1e-10) << to_string(map);
        EXPECT_LT(max_error(whole.narrow(2, origin, 20 - origin).sum(-1), at::ones({}, kF64)),
                  1e-12);
        const Tensor part = attention_map(in.q, in.k, in.W, options, {rows, columns, {}});
        EXPECT_LT(max_error(part, expected.index_select(2, rows).index_select(3, columns)), 1e-10);
        const Tensor pooled = attention_map(in.q, in.k, in.W, options, {{}, {}, 10});
        const Tensor mean = expected.unflatten(3, {2, 10}).sum(4).unflatten(2, {2, 10}).mean(3);
        EXPECT_LT(max_error(pooled, mean), 1e-10);
      }
    }
  }
}

TEST(AttentionMap, RowsSumToOneInFloat32) {
  const MapInputs in = make_inputs(40, 70);
  const Tensor map = attention_map(in.q.to(at::kFloat), in.k.to(at::kFloat), in.W.to(at::kFloat));
  EXPECT_EQ(map.sizes(), at::IntArrayRef({2, 2, 40, 70}));
  EXPECT_EQ(map.scalar_type(), at::kFloat);
  EXPECT_LT((map.to(at::kDouble).sum(-1) - 1).abs().max().item<double>(), 1e-6);
}

TEST(AttentionMap, CausalIsExactlyZeroAboveTheDiagonal) {
  const MapInputs in = make_inputs(70, 70);
  const Tensor map = attention_map(in.q, in.k, in.W, causal_options());
  EXPECT_EQ(map.triu(1).abs().max().item<double>(), 0.0);
  EXPECT_LT((map.sum(-1) - 1).abs().max().item<double>(), 1e-12);
}

TEST(AttentionMap, ChosenRowsAndColumnsEqualThoseOfTheWholeMap) {
  const MapInputs in = make_inputs(30, 30);
  const Tensor rows = at::tensor({7, 0, 29, 7}, at::kLong), columns = at::tensor({3, 28}, at::kInt);
  for (const FavorOptions& options : {FavorOptions{}, causal_options()}) {
    const Tensor whole = attention_map(in.q, in.k, in.W, options);
    const Tensor part = attention_map(in.q, in.k, in.W, options, {rows, columns, {}});
    const Tensor expected = whole.index_select(2, rows).index_select(3, columns);
    EXPECT_LT(max_error(part, expected), 1e-14);
    EXPECT_EQ(attention_map(in.q, in.k, in.W, options, {rows.narrow(0, 0, 0), {}, {}}).sizes(),
              at::IntArrayRef({2, 2, 0, 30}));
  }
}

TEST(AttentionMap, MoreColumnsThanOneBlockAreJoined) {
  at::manual_seed(5);
  const Tensor q = at::randn({1, 1, 4, kDim}, kF64), k = at::randn({1, 1, 2500, kDim}, kF64);
  const Tensor W = at::randn({kRows, kDim}, kF64);
  const Tensor map = attention_map(q, k, W);
  ASSERT_EQ(map.sizes(), at::IntArrayRef({1, 1, 4, 2500}));
  EXPECT_LT(max_error(map, dense_map({q, k, W.unsqueeze(0)}, {})), 1e-13);
}

TEST(AttentionMap, MaskedColumnsAreZero) {
  const MapInputs in = make_inputs(9, 11);
  FavorOptions options;
  options.key_mask = at::ones({2, 11}, at::kBool);
  options.key_mask[0].narrow(0, 6, 5).fill_(false);
  options.key_mask[1].fill_(false);
  const Tensor map = attention_map(in.q, in.k, in.W, options);
  EXPECT_LT(max_error(map[0], dense_map(in, options)[0]), 1e-12);
  EXPECT_EQ(map[1].abs().max().item<double>(), 0.0);
}

TEST(AttentionMap, PooledMapsAverageRowsAndSumColumns) {
  const MapInputs in = make_inputs(10, 10);
  ExactOptions exact_causal;
  exact_causal.causality = Causality::kCausal;
  const auto pooled = [](const Tensor& map, std::int64_t i, std::int64_t j) {
    const std::int64_t rows = i == 2 ? 2 : 4, columns = j == 2 ? 2 : 4;
    return map.narrow(2, 4 * i, rows).narrow(3, 4 * j, columns).sum(3).mean(2);
  };
  const Tensor whole = attention_map(in.q, in.k, in.W, causal_options());
  const Tensor map = attention_map(in.q, in.k, in.W, causal_options(), {{}, {}, 4});
  const Tensor exact_whole = exact_attention_map(in.q, in.k, exact_causal);
  const Tensor exact = exact_attention_map(in.q, in.k, exact_causal, {{}, {}, 4});
  ASSERT_EQ(map.sizes(), at::IntArrayRef({2, 2, 3, 3}));
  ASSERT_EQ(exact.sizes(), map.sizes());
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      EXPECT_LT(max_error(map.select(2, i).select(2, j), pooled(whole, i, j)), 1e-13);
      EXPECT_LT(max_error(exact.select(2, i).select(2, j), pooled(exact_whole, i, j)), 1e-14);
    }
  }
}

TEST(AttentionMap, APoolBeyondEveryLengthIsOneBlock) {
  const MapInputs in = make_inputs(10, 10);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t pool : {std::int64_t{11}, std::int64_t{1} << 40, most}) {
    const Tensor map = attention_map(in.q, in.k, in.W, {}, {{}, {}, pool});
    const Tensor exact = exact_attention_map(in.q, in.k, {}, {{}, {}, pool});
    for (const Tensor& one : {map, exact}) {
      ASSERT_EQ(one.sizes(), at::IntArrayRef({2, 2, 1, 1})) << pool;
      EXPECT_LT(max_error(one, at::ones_like(one)), 1e-13) << pool;
    }
  }
}

TEST(ExactAttentionMap, EqualsTheSoftmax) {
  const MapInputs in = make_inputs(30, 30, /*key_heads=*/1);
  const Tensor logits = at::matmul(in.q, in.k.transpose(-2, -1)) * 0.7;
  ExactOptions options;
  options.scale = 0.7;
  EXPECT_LT(max_error(exact_attention_map(in.q, in.k, options), logits.softmax(-1)), 1e-15);
  options.causality = Causality::kCausal;
  const Tensor past = at::ones({30, 30}, at::kBool).tril();
  const Tensor expected = logits.masked_fill(past.logical_not(), -INFINITY).softmax(-1);
  EXPECT_LT(max_error(exact_attention_map(in.q, in.k, options), expected), 1e-15);
  const Tensor rows = at::tensor({29, 4}, at::kLong), columns = at::tensor({5, 0}, at::kLong);
  EXPECT_LT(max_error(exact_attention_map(in.q, in.k, options, {rows, columns, {}}),
                      expected.index_select(2, rows).index_select(3, columns)),
            1e-15);
}

TEST(ExactAttentionMap, ManyBlocksOfRowsEqualOne) {
  at::manual_seed(6);
  const Tensor q = at::randn({1, 2, 1500, 3}, kF64), k = at::randn({1, 2, 1500, 3}, kF64);
  ExactOptions options;
  options.scale = 1.0;  // 699 rows to a block
  EXPECT_LT(
      max_error(exact_attention_map(q, k, options), at::matmul(q, k.transpose(-2, -1)).softmax(-1)),
      1e-14);
}

TEST(AttentionMap, ApproachesTheExactMapWithManyFeatures) {
  MapInputs in = make_inputs(20, 20);
  in.W = at::randn({20000, kDim}, kF64);
  const Tensor q = in.q * 0.5, k = in.k * 0.5;
  const Tensor exact = exact_attention_map(q, k);
  EXPECT_LT(max_error(attention_map(q, k, in.W), exact), 0.01);
  EXPECT_GT(max_error(exact, at::full_like(exact, 1.0 / 20)), 0.05);
}

TEST(AttentionMap, NamesWhatIsWrong) {
  const MapInputs in = make_inputs(7, 9);
  const auto expect = [&](const FavorOptions& options, const MapSelection& selection,
                          const std::string& text) {
    const std::string message =
        message_of([&] { (void)attention_map(in.q, in.k, in.W, options, selection); });
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect({}, {at::tensor({7}, at::kLong), {}, {}}, "attention_map: rows must be in [0, 7), got 7");
  expect({}, {{}, at::tensor({0, -1}, at::kLong), {}}, "columns must be in [0, 9), got -1");
  expect({}, {at::ones({3}, kF64), {}, {}}, "rows must be int64 or int32 [n], got Double");
  expect({}, {at::ones({1, 3}, at::kLong), {}, {}}, "rows must be int64 or int32 [n]");
  expect({}, {{}, {}, 0}, "pool must be positive, got 0");
  expect({}, {at::tensor({1}, at::kLong), {}, 2}, "pool takes the whole map");
  FavorOptions packed, stateful;
  packed.cu_seqlens_q = at::tensor({0, 7}, at::kInt);
  expect(packed, {}, "packed sequences have no one map");
  stateful.initial_state.kv = at::zeros({2, 2, kRows, 3});
  expect(stateful, {}, "got an initial_state");
  const std::string message = message_of([&] {
    (void)exact_attention_map(in.q, in.k, {}, {{}, at::tensor({9}, at::kLong), {}});
  });
  EXPECT_NE(message.find("exact_attention_map: columns must be in [0, 9), got 9"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace performer
