#pragma once

#include <cmath>
#include <cstdint>

/// The paper's kernels and errors in closed form or as convergent series of positive terms.
namespace performer::theory {

/// All that the kernels and their errors depend on: |x|^2, |y|^2 and x.y.
struct Pair {
  double xx, yy, xy;
  double sum() const { return xx + yy + 2.0 * xy; }         // |x + y|^2
  double difference() const { return xx + yy - 2.0 * xy; }  // |x - y|^2
};

inline double softmax_kernel(const Pair& p) { return std::exp(p.xy); }
inline double lambda(const Pair& p) { return std::exp(-(p.xx + p.yy) / 2.0); }

/// E[exp(sqrt(d) z.v)] for v uniform on the sphere and |z|^2 = s: sum_k (s/2)^k/k! prod d/(d+2i).
inline double sphere_moment(double d, double s) {
  double sum = 1.0, term = 1.0;
  for (int k = 1; k < 2000 && term > 1e-18 * sum; ++k) {
    term *= s / 2.0 / k * d / (d + 2.0 * (k - 1));
    sum += term;
  }
  return sum;
}

/// The regularised softmax kernel SMREG.
inline double regularized_kernel(double d, const Pair& p) {
  return lambda(p) * sphere_moment(d, p.sum());
}

/// Lemma 2: mean squared errors with m independent Gaussian features.
inline double mse_trigonometric(const Pair& p, double m) {
  const double factor = -std::expm1(-p.difference());
  return std::exp(p.sum() - 2.0 * p.xy) * factor * factor / (2.0 * m);
}
inline double mse_positive(const Pair& p, double m) {
  return std::exp(p.sum() + 2.0 * p.xy) * -std::expm1(-p.sum()) / m;
}
inline double mse_hyperbolic(const Pair& p, double m) {
  return 0.5 * -std::expm1(-p.sum()) * mse_positive(p, m);
}

/// The same for m independent directions of norm sqrt(d) and SMREG.
inline double mse_regularized(double d, const Pair& p, double m) {
  const double first = sphere_moment(d, p.sum()), second = sphere_moment(d, 4.0 * p.sum());
  return lambda(p) * lambda(p) * (second - first * first) / m;
}

enum class Norms : std::uint8_t { kChi, kSqrtD };

/// Covariance of two orthogonal positive features over lambda^2; negative. From the appendix:
///   sum_{i,j >= 1} (s/2)^(i+j) / (i! j!) (E|w|^2i E|w|^2j E[v1^2i v2^2j] - ...),
/// with v uniform on the sphere: E[v1^2i v2^2j] = (2i-1)!! (2j-1)!! / (d (d+2) ... (d+2(i+j-1))).
inline double orthogonal_covariance(double d, double s, Norms norms) {
  const auto log_rising = [d](double i) {  // log of d (d+2) ... (d+2(i-1)) = E[chi_d^2i]
    return i * std::log(2.0) + std::lgamma(d / 2.0 + i) - std::lgamma(d / 2.0);
  };
  double sum = 0.0;
  const int terms = 40 + static_cast<int>(4.0 * s);
  for (int i = 1; i < terms; ++i) {
    for (int j = 1; j < terms; ++j) {
      const double size = (i + j) * std::log(s / 2.0) - std::lgamma(i + 1.0) - std::lgamma(j + 1.0);
      const double log_tau = log_rising(i) + log_rising(j) - log_rising(i + j);  // < 0
      const double independent =
          norms == Norms::kChi ? 0.0 : (i + j) * std::log(d) - log_rising(i) - log_rising(j);
      sum += std::exp(size + independent) * std::expm1(log_tau);
    }
  }
  return sum;
}

}  // namespace performer::theory
