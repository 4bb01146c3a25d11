#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "performer/ops/feature_map.h"
#include "performer/ops/projection/projection.h"
#include "tests/theory/closed_forms.h"

namespace performer::theory {

struct Shape {
  std::int64_t draws, num_features, dim;
};

/// Independent draws of W as the library makes them, [draws, M, D] float64.
inline Tensor draw_many(ProjectionKind kind, ProjectionNorm norm, const Shape& shape,
                        ProjectionRounding rounding = ProjectionRounding::kBf16) {
  constexpr std::int64_t kHeads = 50'000;
  ProjectionOptions options;
  options.kind = kind;
  options.norm = norm;
  options.rounding = rounding;
  options.seed = 20'240'229;
  std::vector<Tensor> parts;
  for (std::int64_t done = 0; done < shape.draws; done += kHeads, ++options.draw) {
    options.heads = std::min(kHeads, shape.draws - done);
    parts.push_back(draw_projection(shape.num_features, shape.dim, options).to(at::kDouble));
  }
  return at::cat(parts);
}

/// phi(x).phi(y) for each draw: [draws].
inline Tensor estimates(const Tensor& w, const Tensor& x, const Tensor& y, FeatureMap map) {
  const std::int64_t draws = w.size(0), rows = w.size(0) * w.size(1);
  const Tensor all = w.flatten(0, 1);  // one projection of all rows: terms of every draw at once
  const Tensor terms = features(x, all, map) * features(y, all, map);
  return terms.view({-1, draws, w.size(1)}).sum(0).mean(-1) * static_cast<double>(rows);
}

inline Pair pair_of(const Tensor& x, const Tensor& y) {
  return {x.dot(x).item<double>(), y.dot(y).item<double>(), x.dot(y).item<double>()};
}

/// Mean of independent samples and its standard error.
struct Mean {
  double value, error;
  double deviations(double target) const { return (value - target) / error; }
};

inline Mean mean_of(const Tensor& samples) {
  const auto n = static_cast<double>(samples.numel());
  return {samples.mean().item<double>(), samples.std().item<double>() / std::sqrt(n)};
}

/// x and y with |x|^2, |y|^2 and x.y as given, in general position.
inline std::pair<Tensor, Tensor> make_pair(const Pair& p, std::int64_t dim) {
  const Tensor a = at::arange(1, dim + 1, at::kDouble).sin();
  const Tensor b = at::arange(1, dim + 1, at::kDouble).cos();
  const Tensor u = a / a.norm();
  const Tensor across = b - u * u.dot(b);
  const Tensor v = across / across.norm();
  const double along = p.xy / std::sqrt(p.xx);
  return {u * std::sqrt(p.xx), u * along + v * std::sqrt(std::max(0.0, p.yy - along * along))};
}

}  // namespace performer::theory
