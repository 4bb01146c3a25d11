#include <gtest/gtest.h>

#include <cmath>

#include "performer/ops/favor/state.h"
#include "tests/support/oracle.h"

// Generalised maps where their values leave the range of a type, or nearly cancel.
namespace performer::testing {
namespace {

OpCase exp_case(Causality causality, at::ScalarType dtype, double magnitude) {
  OpCase c;
  c.map = FeatureMap::kExp;
  c.causality = causality;
  c.dtype = dtype;
  c.length = 300;
  c.dim = c.value_dim = 64;
  c.features = 128;
  c.magnitude = magnitude;
  return c;
}

// make_inputs keeps W x near 1; here it has the standard deviation 8 magnitude.
Inputs wide_inputs(const OpCase& c, std::optional<double> eps) {
  Inputs in = make_inputs(c, 3);
  in.W = in.W * 8;
  in.options.eps = eps;
  return in;
}

TEST(Exp, KeepsItsRatioWhereItsValuesLeaveFloat32) {
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    for (const std::optional<double> eps : {std::optional<double>(), std::optional<double>(0.0)}) {
      for (const double magnitude : {1.5, 4.0}) {
        const Inputs in = wide_inputs(exp_case(causality, at::kFloat, magnitude), eps);
        const Tensor out = favor_attention(in.q, in.k, in.v, in.W, in.options);
        const Tensor exact = oracle(in).out;
        ASSERT_TRUE(out.isfinite().all().item<bool>());
        // u is near 8 * 4 * 3, and rounded as such a number is.
        EXPECT_LE(rms_error(out, exact), 1e-5 * magnitude * rms(in.v)) << magnitude;
      }
    }
  }
}

TEST(Exp, HasGradientsWhereItsValuesLeaveFloat32) {
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    const Inputs in = wide_inputs(exp_case(causality, at::kFloat, 1.5), {});
    const Tensor dout = at::ones_like(in.q) * in.q.sign();
    for (const bool parameters : {false, true}) {  // fused, and composed
      const auto got = operator_gradients(in, dout, parameters);
      Inputs wide = in;
      for (Tensor* t : {&wide.q, &wide.k, &wide.v, &wide.W}) *t = t->to(at::kDouble);
      const auto want = operator_gradients(wide, dout.to(at::kDouble), parameters);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_LE(rms_error(got[i], want[i]), 1e-4 * rms(want[i])) << i;
      }
    }
  }
}

TEST(Exp, ContinuesAStateOfItsScales) {
  const Inputs in = wide_inputs(exp_case(Causality::kCausal, at::kFloat, 1.5), {});
  const Tensor whole = favor_attention(in.q, in.k, in.v, in.W, in.options);
  const auto part = [&](std::int64_t begin, std::int64_t length, const FavorState& state) {
    FavorOptions options = in.options;
    options.initial_state = state;
    const auto cut = [&](const Tensor& t) { return t.narrow(2, begin, length); };
    return favor_attention_with_state(cut(in.q), cut(in.k), cut(in.v), in.W, options);
  };
  const auto [head, state] = part(0, 290, {});
  EXPECT_GT(state.log2_scale.max().item<int>(), 40);
  FavorState last = state;
  for (std::int64_t t = 290; t < 300; ++t) {
    const auto [out, next] = part(t, 1, last);
    EXPECT_LE(rms_error(out, whole.narrow(2, t, 1)), 1e-5 * rms(in.v));
    last = next;
  }
}

TEST(Exp, WithoutAProjectionTakesMasksAndKeepsItsRange) {
  OpCase c = exp_case(Causality::kCausal, at::kFloat, 30);
  c.features = 0;
  c.mask = true;
  Inputs in = make_inputs(c);
  const Tensor out = favor_attention(in.q, in.k, in.v, in.W, in.options);
  EXPECT_LE(rms_error(out, oracle(in).out), 1e-5 * rms(in.v));
  in.options.causality = Causality::kBidirectional;
  const Tensor both = favor_attention(in.q, in.k, in.v, in.W, in.options);
  EXPECT_LE(rms_error(both, oracle(in).out), 1e-5 * rms(in.v));
}

// Features far below log(eps), alone and beside large ones. Each column of a gradient by itself:
// the large ones would drown the small. u is near 36 in units of log2 and rounded as such a number
// is.
TEST(Exp, HasTheGradientsOfFeaturesThatEpsOutweighs) {
  for (const Causality causality : {Causality::kBidirectional, Causality::kCausal}) {
    OpCase c = exp_case(causality, at::kFloat, 1);
    c.dim = c.value_dim = 8;
    c.features = 0;
    for (const bool beside_large : {false, true}) {
      Inputs in = make_inputs(c, 3);
      const Tensor shift = at::linspace(-10, -25, c.dim);
      if (beside_large) shift.narrow(0, 0, 4).zero_();
      in.q = in.q + shift;
      in.k = in.k + shift;
      const Tensor dout = in.v.sign();
      Inputs wide = in;
      for (Tensor* t : {&wide.q, &wide.k, &wide.v}) *t = t->to(at::kDouble);
      const auto got = operator_gradients(in, dout, false);
      const auto want = operator_gradients(wide, dout.to(at::kDouble), false);
      for (std::int64_t r = 0; r < c.dim; ++r) {
        for (const std::size_t i : {0, 1}) {
          if (i == 0 && !beside_large) continue;
          const Tensor column = want[i].select(-1, r);
          EXPECT_LE(rms_error(got[i].select(-1, r), column), 3e-6 * rms(column))
              << (i == 0 ? "q" : "k") << ", feature " << r;
        }
      }
    }
  }
}

TEST(Elu1, DoesNotCancelFarBelowZero) {
  OpCase c;
  c.map = FeatureMap::kElu1;
  c.features = 0;
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    c.dtype = dtype;
    Inputs in = make_inputs(c);
    in.q = in.q - 38;
    in.k = in.k - 38;
    const Tensor out = favor_attention(in.q, in.k, in.v, in.W, in.options);
    EXPECT_LE(rms_error(out, oracle(in).out), error_bound(dtype, c.length) * rms(in.v));
  }
}

// f and its slope, far out, against their leading terms.
struct Tail {
  FeatureMap map;
  double u, value, slope;
};

class Tails : public ::testing::TestWithParam<Tail> {};

TEST_P(Tails, KeepTheirRelativePrecision) {
  const auto& [map, u, value, slope] = GetParam();
  const Tensor at_u = at::full({1}, u, at::kDouble);
  EXPECT_NEAR(apply_elementwise(map, at_u).item<double>() / value, 1, 1e-12) << to_string(map);
  EXPECT_NEAR(elementwise_slope(map, at_u).item<double>() / slope, 1, 1e-12) << to_string(map);
  const Tensor leaf = at_u.clone().set_requires_grad(true);
  apply_elementwise(map, leaf).backward();
  if (map == FeatureMap::kTanh || map == FeatureMap::kSigmoid) return;  // torch's own derivative
  EXPECT_NEAR(leaf.grad().item<double>() / slope, 1, 1e-12) << to_string(map);
}

double gauss(double u) { return 0.5 * std::erfc(-u * M_SQRT1_2); }
double bell(double u) { return std::exp(-u * u / 2) / std::sqrt(2 * M_PI); }

INSTANTIATE_TEST_SUITE_P(
    All, Tails,
    ::testing::Values(Tail{FeatureMap::kElu1, -38, std::exp(-38), std::exp(-38)},
                      Tail{FeatureMap::kElu1, 0, 1, 1},  // from the side of exp
                      Tail{FeatureMap::kElu1, 5, 6, 1},
                      Tail{FeatureMap::kSigmoid, -60, std::exp(-60), std::exp(-60)},
                      Tail{FeatureMap::kSigmoid, 40, 1, std::exp(-40)},
                      Tail{FeatureMap::kTanh, 20, 1, 4 * std::exp(-40)},
                      Tail{FeatureMap::kTanh, -20, -1, 4 * std::exp(-40)},
                      Tail{FeatureMap::kGelu, -9, -9 * gauss(-9), gauss(-9) - 9 * bell(9)},
                      Tail{FeatureMap::kGelu, 2, 2 * gauss(2), gauss(2) + 2 * bell(2)}));

}  // namespace
}  // namespace performer::testing
