#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "performer/ops/reference/parts.h"

namespace performer::reference {

bool is_exponential(FeatureMap map) { return map <= FeatureMap::kHyperbolic; }

bool is_softmax(FeatureMap map) { return map <= FeatureMap::kTrigonometric; }

Tensor elementwise(FeatureMap map, const Tensor& u) {
  switch (map) {
    case FeatureMap::kRelu:
      return u.relu();
    case FeatureMap::kExp:
      return u.exp();
    case FeatureMap::kSigmoid:
      return u.sigmoid();
    case FeatureMap::kAbs:
      return u.abs();
    case FeatureMap::kGelu:
      return 0.5 * u * (1 + at::erf(u / std::numbers::sqrt2));
    case FeatureMap::kCos:
      return u.cos();
    case FeatureMap::kTanh:
      return u.tanh();
    case FeatureMap::kIdentity:
      return u;
    case FeatureMap::kSquare:
      return u * u;
    case FeatureMap::kElu1:
      return at::where(u > 0, u + 1, u.clamp_max(0).exp());
    case FeatureMap::kSgn:
      return u.sign();
    default:
      TORCH_INTERNAL_ASSERT(false, "not a generalised map");
  }
}

double log_constant(FeatureMap map, std::int64_t rows) {
  switch (map) {
    case FeatureMap::kPositive:
    case FeatureMap::kTrigonometric:
      return -std::log(static_cast<double>(rows));
    case FeatureMap::kHyperbolic:
      return -std::log(2.0 * static_cast<double>(rows));
    default:
      return 0;
  }
}

double scale_of(const FavorOptions& o, std::int64_t dim) {
  return o.scale.value_or(is_softmax(o.feature_map) ? 1 / std::sqrt(static_cast<double>(dim)) : 1);
}

double eps_of(const FavorOptions& o) {
  return o.eps.value_or(o.feature_map == FeatureMap::kElu1 ? 0 : 1e-3);
}

}  // namespace performer::reference
