// Theorem 1: the regularised kernel SMREG lies below the softmax kernel, and close to it for large
// d.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/theory/closed_forms.h"

namespace performer::theory {
namespace {

// SMREG/SM; a function of d and s = |x + y|^2 alone.
double kernel_ratio(double d, double s) { return sphere_moment(d, s) * std::exp(-s / 2.0); }

TEST(Theorem1, TheSeriesIsTheBesselFunctionOfTheSphere) {
  for (const double d : {2.0, 3.0, 8.0, 64.0}) {
    for (const double s : {0.1, 1.0, 4.0, 16.0}) {
      const double order = d / 2.0 - 1.0, argument = std::sqrt(d * s);
      const double bessel = std::exp(std::lgamma(d / 2.0) + order * std::log(2.0 / argument)) *
                            std::cyl_bessel_i(order, argument);
      EXPECT_NEAR(sphere_moment(d, s) / bessel, 1.0, 1e-10) << d << ", " << s;
    }
  }
}

TEST(Theorem1, TheRegularizedKernelIsAUniversalLowerBound) {
  for (const double d : {2.0, 3.0, 4.0, 8.0, 16.0, 64.0, 128.0, 1024.0}) {
    double before = 1.0;
    for (double s = 0.25; s <= 256.0; s *= 2.0) {
      const double ratio = kernel_ratio(d, s);
      EXPECT_LE(ratio, 1.0);
      EXPECT_LT(ratio, before) << "further from 1 for longer x + y";
      EXPECT_LT(ratio, kernel_ratio(2.0 * d, s)) << "closer to 1 for larger d";
      before = ratio;
    }
  }
}

TEST(Theorem1, TheRatioIsAboveItsAsymptoticBoundWhereThatApplies) {
  for (const double d : {16.0, 32.0, 64.0, 128.0, 512.0, 4096.0}) {
    for (const double s : {0.5, 1.0, 2.0, 4.0}) {
      EXPECT_GE(kernel_ratio(d, s), 1.0 - 2.0 / std::cbrt(d)) << d << ", " << s;
    }
  }
  // The bound holds up to o(d^(-1/3)) for bounded kernels only: at larger norms it does not.
  EXPECT_NEAR(kernel_ratio(64.0, 16.0), 0.471, 5e-4);
  EXPECT_LT(kernel_ratio(64.0, 16.0), 1.0 - 2.0 / std::cbrt(64.0));
}

}  // namespace
}  // namespace performer::theory
