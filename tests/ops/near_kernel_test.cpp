// The fused CPU kernels of the near field, beyond the cases that every path runs.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "performer/ops/last_kernel.h"
#include "tests/support/cpu_kernels.h"
#include "tests/support/oracle.h"
#include "tests/support/threads.h"

namespace performer::testing {
namespace {

constexpr Causality kBoth = Causality::kBidirectional, kCausal = Causality::kCausal;

Tensor gradient_for(const Inputs& in, const OpCase& c) {
  at::manual_seed(7);
  return at::randn({in.q.size(0), c.heads, c.length, c.values()}, at::kDouble).to(c.dtype);
}

bool ran_fused(const OpCase& c) {
  const std::string kernel = last_kernel();
  return kernel.starts_with("cpu/") &&
         kernel.ends_with(c.causal() ? "causal/near" : "bidirectional/near");
}

TEST(NearKernels, AreNamed) {
  const CpuKernels portable("portable");
  const OpCase c{.causality = kCausal, .near = 16};
  const Inputs in = make_inputs(c);
  attend(in);
  EXPECT_EQ(last_kernel(), "cpu/portable/fp32/positive/causal/near");
  operator_gradients(in, gradient_for(in, c), false);
  EXPECT_EQ(last_kernel(), "cpu/portable/fp32/positive/causal/near");
  attend(make_inputs({.map = FeatureMap::kHyperbolic, .dtype = at::kBFloat16, .near = 16}));
  EXPECT_EQ(last_kernel(), "cpu/portable/bf16/hyperbolic/bidirectional/near");
}

TEST(NearKernels, LeaveToTheComposedOperatorWhatTheyDoNotServe) {
  const OpCase c{.causality = kCausal, .near = 16};
  const Inputs in = make_inputs(c);
  operator_gradients(in, gradient_for(in, c), true);  // W's gradient too
  EXPECT_EQ(last_kernel(), "composed");
  attend(make_inputs({.map = FeatureMap::kTrigonometric, .near = 16}));
  EXPECT_EQ(last_kernel(), "composed");
  Inputs leaves = as_leaves(in, false);
  const auto [out, state] =
      favor_attention_with_state(leaves.q, leaves.k, leaves.v, leaves.W, leaves.options);
  gradients_of(state.near_values, at::ones_like(state.near_values), {leaves.v});
  EXPECT_EQ(last_kernel(), "composed");
}

class NearKernelGradient : public ::testing::TestWithParam<OpCase> {};

TEST_P(NearKernelGradient, IsWithinThreeTimesTheUnfusedError) {
  const OpCase& c = GetParam();
  const Inputs in = make_inputs(c);
  const Tensor rows = at::arange(c.length, at::kLong), dout = gradient_for(in, c);
  const auto got = operator_gradients(in, dout, false);
  ASSERT_TRUE(ran_fused(c)) << last_kernel();
  const auto want = oracle_gradients(in, dout, false, rows);
  const auto unfused = oracle_gradients(in, dout, false, rows, c.dtype);
  const char* names[] = {"q", "k", "v"};
  for (std::size_t n = 0; n < 3; ++n) {
    const double floor = epsilon(at::kFloat) * std::max(rms(dout), rms(want[n]));
    EXPECT_LE(rms_error(got[n], want[n]), 3 * rms_error(unfused[n], want[n]) + floor) << names[n];
  }
}

std::vector<OpCase> gradient_cases() {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {1, 1},    {9, 1},    {22, 7},    {49, 16},   {63, 64},   {64, 64},   {65, 64}, {130, 64},
      {200, 64}, {257, 64}, {101, 100}, {301, 100}, {129, 128}, {400, 128}, {70, 16}, {300, 40}};
  std::vector<OpCase> cases;
  for (const auto& [length, near] : sizes) {
    for (const FeatureMap map :
         {FeatureMap::kPositive, FeatureMap::kHyperbolic, FeatureMap::kLoglinear}) {
      const auto n = cases.size();
      OpCase c{.map = map, .causality = (n / 2) % 2 == 0 ? kCausal : kBoth, .length = length};
      c.near = near;
      c.dtype = n % 4 == 3 ? at::kBFloat16 : n % 7 == 5 ? at::kHalf : at::kFloat;
      c.heads = 4, c.key_heads = n % 3 == 0 ? 4 : 2;
      c.mask = n % 5 == 1, c.key_bias = n % 5 == 2, c.packed = n % 5 == 3 && length > 9;
      c.initial_state = n % 5 == 4, c.strided = n % 6 == 0;
      c.query_bias = map == FeatureMap::kLoglinear && n % 2 == 0;
      c.value_dim = n % 3 == 2 ? 12 : -1;
      if (c.packed) c.batch = 1, c.strided = false;
      if (c.dtype == at::kFloat && n % 8 == 6) c.magnitude = 10;
      if (length == 1 && c.dtype != at::kFloat) c.dtype = at::kFloat;
      c.name = std::to_string(length) + "_" + std::to_string(near);
      cases.push_back(c);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Borders, NearKernelGradient, ::testing::ValuesIn(gradient_cases()),
                         CaseName());

/// Output and gradients by the composed operator in float64.
std::vector<Tensor> in_float64(const Inputs& in, const Tensor& dout) {
  Inputs wide = as_leaves(in, false, at::kDouble);
  const Tensor out = attend(wide);
  auto all = gradients_of(out, dout.to(at::kDouble), {wide.q, wide.k, wide.v});
  all.push_back(out.detach());
  return all;
}

std::vector<Tensor> fused(const Inputs& in, const Tensor& dout) {
  Inputs leaves = as_leaves(in, false);
  const Tensor out = attend(leaves);
  auto all = gradients_of(out, dout, {leaves.q, leaves.k, leaves.v});
  all.push_back(out.detach());
  return all;
}

void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  for (std::size_t n = 0; n < got.size(); ++n) {
    EXPECT_LE(rms_error(got[n], want[n]), 3e-6 * rms(want[n])) << n;
  }
}

// Few heads: a sequence is cut into a stretch for each thread.
TEST(NearKernels, AnyNumberOfThreadsGivesTheSame) {
  for (const Causality causality : {kCausal, kBoth}) {
    for (const std::int64_t heads : {1, 3}) {
      for (const std::int64_t near : {16, 64}) {
        OpCase c{.causality = causality, .batch = 1, .heads = heads, .key_heads = 1};
        c.length = 1000, c.mask = heads == 3, c.near = near;
        const Inputs in = make_inputs(c);
        const Tensor dout = gradient_for(in, c);
        const auto want = in_float64(in, dout);
        for (const int threads : {1, 2, 3}) {
          SCOPED_TRACE(std::to_string(threads) + " threads");
          const Threads limit(threads);
          const auto got = fused(in, dout), again = fused(in, dout);
          ASSERT_TRUE(ran_fused(c));
          expect_close(got, want);
          for (std::size_t n = 0; n < got.size(); ++n) EXPECT_TRUE(bit_equal(got[n], again[n]));
        }
      }
    }
  }
}

// The sums of so many blocks are more than a thread keeps at a time.
TEST(NearKernels, LongSequencesGoInStretches) {
  const Threads one(1);
  OpCase c{.batch = 1, .heads = 1, .key_heads = 1, .length = 700, .dim = 64, .features = 1024};
  c.near = 1;
  const Inputs in = make_inputs(c);
  const Tensor dout = gradient_for(in, c);
  const auto got = fused(in, dout);
  ASSERT_TRUE(ran_fused(c));
  expect_close(got, in_float64(in, dout));
}

TEST(NearKernels, RowsThatOneKeyDecidesHaveNoGradient) {
  OpCase c{.causality = kCausal, .length = 70, .dim = 64};
  c.near = 64;
  Inputs in = make_inputs(c);
  in.options.key_mask = at::zeros({2, 70}, at::kBool);
  in.options.key_mask.select(1, 3).fill_(true);
  const auto grads = operator_gradients(in, gradient_for(in, c), false);
  ASSERT_TRUE(ran_fused(c));
  EXPECT_EQ(grads[0].slice(2, 0, 67).abs().max().item<double>(), 0);
  EXPECT_EQ(grads[1].abs().max().item<double>(), 0);
}

TEST(NearKernels, RatiosAreExactAtAnyNorm) {
  for (const Causality causality : {kCausal, kBoth}) {
    for (const double magnitude : {30.0, 300.0, 1000.0}) {
      OpCase c{.causality = causality, .length = 300, .dim = 64, .magnitude = magnitude};
      c.near = 64;
      Inputs in = make_inputs(c);
      const Tensor ones = at::ones_like(in.v);
      const Tensor out = favor_attention(in.q, in.k, ones, in.W, in.options);
      EXPECT_LE(max_error(out, ones), 1e-6) << magnitude;  // rows sum to 1
      for (const Tensor& grad : operator_gradients(in, gradient_for(in, c), false)) {
        EXPECT_TRUE(grad.isfinite().all().item<bool>()) << magnitude;
      }
      ASSERT_TRUE(ran_fused(c)) << last_kernel();
    }
  }
}

// Also beyond one stretch, and of what else says something about a key.
TEST(NearKernels, LaterMasksBiasesAndTokensLeaveEarlierRowsBitEqual) {
  for (const std::int64_t near : {1, 16, 64, 100}) {
    for (const int threads : {1, 3}) {
      const Threads limit(threads);
      OpCase c{.causality = kCausal, .batch = 1, .heads = 1, .key_heads = 1, .length = 420};
      c.mask = c.key_bias = true, c.near = near;
      const Inputs in = make_inputs(c);
      const Tensor before = attend(in);
      ASSERT_TRUE(ran_fused(c));
      for (const double value : {-1e30, std::nan(""), std::numeric_limits<double>::infinity()}) {
        Inputs changed = in;
        const auto change = [](Tensor& t, std::int64_t dim, double to) {
          t = t.clone();
          t.slice(dim, 233).fill_(to);
        };
        change(changed.q, 2, value), change(changed.k, 2, value), change(changed.v, 2, value);
        change(changed.options.key_bias, -1, value);
        changed.options.key_mask = in.options.key_mask.clone();
        changed.options.key_mask.slice(1, 233).logical_not_();
        EXPECT_TRUE(bit_equal(attend(changed).slice(2, 0, 233), before.slice(2, 0, 233)))
            << near << " " << threads << " " << value;
      }
    }
  }
}

}  // namespace
}  // namespace performer::testing
