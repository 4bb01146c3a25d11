#pragma once

#include <cmath>

#include "performer/kernels/params.h"

namespace performer::kernels::cuda {

inline constexpr double kLog2E = 1.4426950408889634074;
inline constexpr double kLn2 = 0.69314718055994530942;

/// x as the sum of two floats: a product with it is rounded once, fmaf(y, high, y * low).
struct Factor {
  float high = 0, low = 0;
};
inline Factor split_factor(double x) {
  const auto high = static_cast<float>(x);
  return {high, static_cast<float>(x - static_cast<double>(high))};
}

/// A call with the constants its kernels fold in, made once on the host and passed by value.
struct Problem : FavorProblem {
  bool exponential = false;
  Factor projection;        // of W x: sqrt(scale), times log2(e) for exponential maps
  Factor bias;              // of biases: log2(e)
  float pull_back = 0;      // of g W for the gradient g of u: ln 2 for exponential maps, else 1
  float half_norm = 0;      // of |k|^2 in a key's log2 features: -scale log2(e) / 2, or 0
  float norm_gradient = 0;  // of k: -scale where keys carry their norm, or 0
  float eps_value = 0;
};

inline Problem make_problem(const FavorProblem& problem) {
  Problem p;
  static_cast<FavorProblem&>(p) = problem;
  p.exponential = problem.map == Map::kExponential;
  p.projection = split_factor(std::sqrt(problem.scale) * (p.exponential ? kLog2E : 1.0));
  p.bias = split_factor(kLog2E);
  p.pull_back = p.exponential ? static_cast<float>(kLn2) : 1.0F;
  const bool norm = p.exponential && problem.norm_term;
  p.half_norm = norm ? static_cast<float>(-0.5 * problem.scale * kLog2E) : 0.0F;
  p.norm_gradient = norm ? static_cast<float>(-problem.scale) : 0.0F;
  p.eps_value = p.exponential ? 0.0F : static_cast<float>(problem.eps);
  return p;
}

}  // namespace performer::kernels::cuda
