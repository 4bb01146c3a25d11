#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/oracle.h"

namespace performer::testing {
namespace {

/// Dimensions from the slowest to the fastest.
std::vector<std::int64_t> stride_order(const Tensor& t) {
  std::vector<std::int64_t> order(t.dim());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return t.stride(a) > t.stride(b); });
  return order;
}

Inputs contiguous(const Inputs& in) {
  Inputs copy = in;
  for (Tensor* t : {&copy.q, &copy.k, &copy.v}) *t = t->contiguous();
  return copy;
}

class Strided : public ::testing::TestWithParam<std::tuple<FeatureMap, Causality>> {
 protected:
  Inputs inputs() const {
    const auto [map, causality] = GetParam();
    return make_inputs({.map = map, .causality = causality, .dim = 16, .strided = true});
  }
};

TEST_P(Strided, OutputTakesTheStrideOrderOfQ) {
  const Inputs in = inputs();
  const Tensor out = attend(in);
  EXPECT_EQ(stride_order(out), stride_order(in.q));
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
  const Tensor want = attend(contiguous(in));
  EXPECT_TRUE(want.is_contiguous());
  EXPECT_LE(rms_error(out, want), 1e-6 * std::max(1.0, rms(want)));
}

TEST_P(Strided, GradientsTakeTheStrideOrderOfTheirInputs) {
  const Inputs in = inputs();
  const Tensor dout = at::ones_like(in.q);
  const auto got = operator_gradients(in, dout, false);
  const auto want = operator_gradients(contiguous(in), dout.contiguous(), false);
  const Tensor* inputs[] = {&in.q, &in.k, &in.v};
  for (std::size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(stride_order(got[n]), stride_order(*inputs[n])) << n;
    EXPECT_LE(rms_error(got[n], want[n]), 2e-6 * std::max(1.0, rms(want[n]))) << n;
  }
}

const auto name_of_case = [](const auto& info) {
  const auto [map, causality] = info.param;
  return std::string(to_string(map)) + (causality == Causality::kCausal ? "_causal" : "_both");
};

INSTANTIATE_TEST_SUITE_P(
    Maps, Strided,
    ::testing::Combine(::testing::Values(FeatureMap::kPositive, FeatureMap::kHyperbolic,
                                         FeatureMap::kRelu, FeatureMap::kCos),
                       ::testing::Values(Causality::kBidirectional, Causality::kCausal)),
    name_of_case);

TEST(FavorAttention, TakesExpandedAndReversedViews) {
  OpCase c{.causality = Causality::kCausal, .dtype = at::kDouble, .batch = 1};
  Inputs in = make_inputs(c);
  for (Tensor* t : {&in.k, &in.v}) *t = t->expand({3, 2, 65, 8});
  in.q = in.q.expand({3, 2, 65, 8}).transpose(-1, -2).contiguous().transpose(-1, -2);
  EXPECT_LE(rms_error(attend(in), oracle(in).out), 1e-13);
}

TEST(FavorAttention, DoesNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const FeatureMap map : {FeatureMap::kPositive, FeatureMap::kRelu}) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      const OpCase c{.map = map, .causality = causality, .length = 1000, .dim = 32, .features = 64};
      const Inputs in = make_inputs(c);
      at::set_num_threads(1);
      const Tensor one = attend(in);
      const auto grads_of_one = operator_gradients(in, at::ones_like(in.q), false);
      at::set_num_threads(3);
      const Tensor three = attend(in);
      const auto grads_of_three = operator_gradients(in, at::ones_like(in.q), false);
      at::set_num_threads(threads);
      EXPECT_LE(rms_error(one, three), 1e-6 * rms(in.v)) << to_string(map);
      for (std::size_t n = 0; n < 3; ++n) {
        EXPECT_LE(rms_error(grads_of_one[n], grads_of_three[n]),
                  1e-5 * std::max(1.0, rms(grads_of_one[n])));
      }
    }
  }
}

TEST(FavorAttention, GivesTheSameBitsTwice) {
  const Inputs in = make_inputs({.causality = Causality::kCausal, .length = 1000, .dim = 32});
  EXPECT_TRUE(bit_equal(attend(in), attend(in)));
}

}  // namespace
}  // namespace performer::testing
