#include "performer/fit/coordinates.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tests/models/tiny_model.h"

namespace performer::fit {
namespace {

using models::FittedFeatures;
using models::Heads;
using models::ModelConfig;

constexpr std::int64_t kHeads = 4, kWidth = 8;

FittedFeatures features_with(std::int64_t near) {
  ModelConfig config = models::testing::tiny("favor");
  config.dim = kHeads * kWidth, config.heads = kHeads;
  config.attention.kind = "favor";
  config.attention.kernel = "loglinear";
  config.attention.projection = "fitted";
  config.attention.features = 16;
  config.attention.near = near;
  return FittedFeatures(config, 0);
}

// Keys of components that differ much, off the origin.
Heads uneven_heads() {
  at::manual_seed(3);
  const at::Tensor size = at::logspace(-1, 1, kWidth);
  return {at::randn({2, kHeads, 24, kWidth}) / size,
          at::randn({2, kHeads, 24, kWidth}) * size + 2 * size,
          {}};
}

// Relative to the largest.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

class CoordinatesOf : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(CoordinatesOf, AreChangesInCentredBalancedQueriesAndKeys) {
  auto features = features_with(GetParam());
  const auto heads = uneven_heads();
  const double scale = features->scale();
  Moments moments;
  moments.add(heads, at::ones({2, 24}, at::kBool), scale);
  calibrate(*features, moments);
  const at::Tensor log_q = features->log_queries(heads.q), log_k = features->log_keys(heads.k);
  const at::Tensor form = features->key_form.clone();

  Coordinates coordinates(features, moments);
  at::manual_seed(4);
  std::map<std::string, at::Tensor> change;
  for (const auto& [name, tensor] : coordinates.changes()) {
    change[name] = tensor.add_(0.1 * at::randn_like(tensor));
  }
  coordinates.settle();

  const auto [there, back] = balance_of(moments);
  const auto centred = [&](const at::Tensor& t, const at::Tensor& mean) {
    return t * std::sqrt(scale) - mean.to(at::kFloat).unsqueeze(-2);
  };
  const at::Tensor x = centred(heads.q, moments.query_mean());
  const at::Tensor y = centred(heads.k, moments.key_mean());
  const auto moved = [](const at::Tensor& t, const at::Tensor& matrix, const at::Tensor& rows) {
    return at::matmul(at::matmul(t, matrix.to(at::kFloat)), rows.transpose(-2, -1));
  };
  const auto term = [](const at::Tensor& t, const at::Tensor& own, const at::Tensor& spread) {
    const at::Tensor square = at::matmul(t, own.transpose(-2, -1)).square().sum(-1);
    return (-0.5 * spread.expm1().unsqueeze(-1) * square).unsqueeze(-1);
  };
  const at::Tensor wished_k = log_k + moved(y, back, change["key_rows"]) +
                              change["key_shift"].unsqueeze(-2) +
                              term(y, form, change["key_spread"]);
  EXPECT_LT(difference(features->log_keys(heads.k), wished_k), 1e-5);
  at::Tensor wished_q =
      log_q + moved(x, there, change["query_rows"]) + change["query_shift"].unsqueeze(-2);
  if (GetParam() > 0) {
    wished_q = wished_q + change["query_offset"].view({-1, 1, 1}) +
               term(x, there.to(at::kFloat), change["query_spread"]);
  }
  EXPECT_LT(difference(features->log_queries(heads.q), wished_q), 1e-5);
  for (const auto& buffer : features->named_buffers()) {
    if (buffer.key() == "key_weight") EXPECT_TRUE(buffer.value().is_same(features->key_weight));
  }
}

TEST_P(CoordinatesOf, ChangeNothingAtFirst) {
  auto features = features_with(GetParam());
  const auto before = features->key_weight.clone();
  Coordinates coordinates(features, Moments());
  coordinates.settle();
  EXPECT_TRUE(at::equal(features->key_weight, before));
}

INSTANTIATE_TEST_SUITE_P(Near, CoordinatesOf, ::testing::Values(0, 4));

}  // namespace
}  // namespace performer::fit
