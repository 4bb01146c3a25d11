#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "performer/ops/last_kernel.h"
#include "tests/support/cpu_kernels.h"
#include "tests/support/message_of.h"
#include "tests/support/oracle.h"
#include "tests/support/threads.h"

// What the fused kernels promise beyond the operator's own cases: which path runs, and threads.
namespace performer::testing {
namespace {

std::string kernel_of(const Inputs& in) {
  attend(in);
  return last_kernel();
}

TEST(CpuKernels, AreNamedByPathTypeMapAndDirection) {
  const CpuKernels portable("portable");
  EXPECT_EQ(kernel_of(make_inputs({})), "cpu/portable/fp32/positive/bidirectional");
  EXPECT_EQ(
      kernel_of(make_inputs(
          {.map = FeatureMap::kRelu, .causality = Causality::kCausal, .dtype = at::kBFloat16})),
      "cpu/portable/bf16/relu/causal");
}

TEST(CpuKernels, LeaveToTheComposedOperatorWhatTheyDoNotServe) {
  const CpuKernels portable("portable");
  EXPECT_EQ(kernel_of(make_inputs({.dtype = at::kDouble})), "composed");
  EXPECT_EQ(kernel_of(make_inputs({.map = FeatureMap::kTrigonometric})), "composed");
  EXPECT_EQ(kernel_of(make_inputs({.renormalize = Renormalize::kNo})), "composed");
  const CpuKernels off("off");
  EXPECT_EQ(kernel_of(make_inputs({})), "composed");
}

TEST(CpuKernels, OfABackwardPassAreNamedToo) {
  const CpuKernels portable("portable");
  const Inputs in = make_inputs({.causality = Causality::kCausal});
  operator_gradients(in, at::ones_like(in.q), false);
  EXPECT_EQ(last_kernel(), "cpu/portable/fp32/positive/causal");
  operator_gradients(in, at::ones_like(in.q), true);  // W's gradient too
  EXPECT_EQ(last_kernel(), "composed");
}

TEST(CpuKernels, HandNormsBeyondTheirRangeToTheComposedBackwardPass) {
  const CpuKernels portable("portable");
  const OpCase c{.causality = Causality::kCausal, .length = 200, .dim = 64, .magnitude = 100};
  const Inputs in = make_inputs(c);
  for (const Tensor& grad : operator_gradients(in, at::ones_like(in.q), false)) {
    EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
  }
  EXPECT_EQ(last_kernel(), "composed");
}

TEST(CpuKernels, RefuseAnUnknownName) {
  const CpuKernels wrong("sse9");
  try {
    attend(make_inputs({}));
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_EQ(std::string(error.what()),
              "PERFORMER_CPU_KERNELS=sse9 is not one of auto, portable, avx2, avx512, avx512_bf16, "
              "amx, off");
  }
}

struct ThreadCase {
  Causality causality;
  std::int64_t heads, length;
};

class CpuThreads : public ::testing::TestWithParam<ThreadCase> {};

TEST_P(CpuThreads, GiveTheSameBitsEachTimeAndTheSameNumbersInAnyCount) {
  const auto [causality, heads, length] = GetParam();
  const OpCase c{.causality = causality,
                 .batch = 1,
                 .heads = heads,
                 .key_heads = heads,
                 .length = length,
                 .dim = 16,
                 .features = 40,
                 .mask = true};
  const Inputs in = make_inputs(c);
  const Tensor dout = at::ones_like(in.q);
  Tensor one;
  std::vector<Tensor> one_gradients;
  for (const int threads : {1, 2, 3, 8}) {
    const Threads set(threads);
    const Tensor out = attend(in);
    EXPECT_TRUE(bit_equal(out, attend(in))) << threads;
    const auto gradients = operator_gradients(in, dout, false);
    const auto again = operator_gradients(in, dout, false);
    for (std::size_t n = 0; n < gradients.size(); ++n) {
      EXPECT_TRUE(bit_equal(gradients[n], again[n])) << threads << " " << n;
    }
    if (threads == 1) {
      one = out;
      one_gradients = gradients;
    }
    EXPECT_LE(rms_error(out, one), 2e-6) << threads;
    for (std::size_t n = 0; n < gradients.size(); ++n) {
      EXPECT_LE(rms_error(gradients[n], one_gradients[n]), 2e-6) << threads << " " << n;
    }
  }
}

// One head of one long sequence, more heads than threads, and pieces shorter than a tile.
INSTANTIATE_TEST_SUITE_P(Shapes, CpuThreads,
                         ::testing::Values(ThreadCase{Causality::kBidirectional, 1, 1500},
                                           ThreadCase{Causality::kBidirectional, 5, 130},
                                           ThreadCase{Causality::kBidirectional, 3, 7},
                                           ThreadCase{Causality::kCausal, 1, 5000},
                                           ThreadCase{Causality::kCausal, 5, 130}));

// One head on three threads, which go in rounds of chunks.
OpCase one_long_head() {
  return {.causality = Causality::kCausal,
          .batch = 1,
          .heads = 1,
          .key_heads = 1,
          .length = 2500,
          .dim = 16,
          .features = 40};
}

// What comes after t, whatever it is, leaves the rows up to t as they are, and keys that outgrow
// the scales of a round are still exact.
TEST(CpuThreads, OfOneCausalHeadSeeNothingLater) {
  const Threads three(3);
  const Inputs in = make_inputs(one_long_head());
  const Tensor out = attend(in);
  for (const std::int64_t t : {0, 63, 64, 700, 1536, 2200}) {
    for (const double value : {1e4, -300.0, std::nan(""), HUGE_VAL}) {
      Inputs changed = in;
      for (Tensor* x : {&changed.q, &changed.k, &changed.v}) {
        *x = x->clone();
        x->slice(2, t + 1).fill_(value);
      }
      EXPECT_TRUE(bit_equal(attend(changed).slice(2, 0, t + 1), out.slice(2, 0, t + 1)))
          << t << " " << value;
    }
  }
}

TEST(CpuThreads, OfOneCausalHeadAreExactWhereKeysOutgrowARound) {
  const Threads three(3);
  Inputs in = make_inputs(one_long_head());
  in.options.feature_map = FeatureMap::kLoglinear;
  in.k.select(2, 1000).mul_(60);  // log2 features far above those before
  in.k.select(2, 1001).mul_(20);
  const Tensor rows = at::tensor(std::vector<std::int64_t>{0, 999, 1000, 1001, 1023, 1024, 2499});
  const Tensor got = attend(in).index_select(2, rows);
  EXPECT_LE(rms_error(got, oracle(in, rows).out), 2e-5 * rms(in.v));
}

/// Relative RMS distance of the fused kernels' results from the composed operator's.
template <class Call>
double distance_from_composed(const Call& call) {
  const Tensor fused = call();
  const CpuKernels off("off");
  const Tensor composed = call();
  return rms_error(fused, composed) / std::max(rms(composed), 1e-30);
}

class CpuStateGradient : public ::testing::TestWithParam<std::tuple<FeatureMap, int>> {};

TEST_P(CpuStateGradient, ReachesInitialStateAndKeysInAnyNumberOfThreads) {
  const auto [map, threads] = GetParam();
  const Threads set(threads);
  const Inputs in = make_inputs({.map = map,
                                 .causality = Causality::kCausal,
                                 .batch = 1,
                                 .heads = 1,
                                 .key_heads = 1,
                                 .length = 300,
                                 .initial_state = true});
  for (const bool of_state : {false, true}) {
    EXPECT_LE(distance_from_composed([&] {
                Inputs leaves = as_leaves(in, false);
                FavorState& initial = leaves.options.initial_state;
                initial.kv = initial.kv.detach().requires_grad_();
                const auto [out, state] = favor_attention_with_state(leaves.q, leaves.k, leaves.v,
                                                                     leaves.W, leaves.options);
                const Tensor loss = out.square().sum() + 1e-3 * state.normalizer.sum();
                return torch::autograd::grad({loss}, {of_state ? initial.kv : leaves.k})[0];
              }),
              1e-5)
        << of_state;
  }
}

INSTANTIATE_TEST_SUITE_P(MapsAndThreads, CpuStateGradient,
                         ::testing::Combine(::testing::Values(FeatureMap::kPositive,
                                                              FeatureMap::kRelu, FeatureMap::kElu1),
                                            ::testing::Values(1, 3)));

// One key has weight 1 whatever its norm: q and k have no gradient, though forward and backward
// pass may be different kernels (bfloat16 pairs, streaming).
TEST(CpuKernels, LeaveNoGradientToASingleKeyOfAnyNorm) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
      const OpCase c{.causality = causality,
                     .dtype = dtype,
                     .length = 1,
                     .dim = 64,
                     .features = 128,
                     .magnitude = 300};
      const Inputs in = make_inputs(c);
      const auto gradients = operator_gradients(in, at::ones_like(in.q), false);
      EXPECT_LE(gradients[0].abs().max().item<double>(), 1e-5)
          << static_cast<int>(causality) << dtype;
      EXPECT_LE(gradients[1].abs().max().item<double>(), 1e-2)
          << static_cast<int>(causality) << dtype;
    }
  }
}

TEST(CpuThreads, StartFromAStateThatSomeFeaturesNeverReached) {
  const Threads two(2);
  const OpCase c{.causality = Causality::kCausal,
                 .batch = 1,
                 .heads = 1,
                 .key_heads = 1,
                 .length = 1000,
                 .initial_state = true};
  Inputs in = make_inputs(c);
  FavorState& state = in.options.initial_state;
  for (Tensor* t : {&state.kv, &state.normalizer}) t->slice(2, 0, t->size(2), 2).zero_();
  state.log2_scale.slice(2, 0, state.log2_scale.size(2), 2).fill_(kEmptyLog2Scale);
  EXPECT_LE(distance_from_composed([&] { return attend(in); }), 1e-5);
}

TEST(CpuKernels, GiveNaNWhereAllKeysLeftTheRangeOfScales) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    Inputs in = make_inputs({.dtype = dtype});
    in.k = at::full_like(in.k, 1e20);
    EXPECT_TRUE(attend(in).isnan().all().item<bool>()) << dtype;
  }
}

TEST(CpuKernels, KeepTheStateOfValuesWithoutColumns) {
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    Inputs in = make_inputs({.causality = causality, .value_dim = 0, .initial_state = true});
    const auto normalizer = [&] {
      return favor_attention_with_state(in.q, in.k, in.v, in.W, in.options).second.normalizer;
    };
    EXPECT_LE(distance_from_composed(normalizer), 1e-6);
  }
}

// 17 features fill no whole vector: those that are not there stay out, also of infinite tokens.
TEST(CpuKernels, KeepInfiniteKeysOutOfFeaturesThatAreNotThere) {
  for (const FeatureMap map : {FeatureMap::kSigmoid, FeatureMap::kTanh}) {
    Inputs in = make_inputs({.map = map, .causality = Causality::kCausal, .features = 17});
    in.k.select(2, 20).select(-1, 3).fill_(HUGE_VAL);
    EXPECT_TRUE(at::isfinite(attend(in)).all().item<bool>()) << to_string(map);
  }
}

}  // namespace
}  // namespace performer::testing
