#include "performer/ops/feature_map.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <sstream>

#include "performer/core/nearest.h"
#include "performer/ops/checks.h"

namespace performer {
namespace {

constexpr std::array<std::string_view, 15> kNames = {
    "positive", "loglinear", "hyperbolic", "trigonometric", "relu",   "exp",  "sigmoid", "abs",
    "gelu",     "cos",       "tanh",       "identity",      "square", "elu1", "sgn"};

Tensor features_op(const Tensor& x, const std::optional<Tensor>& projection,
                   c10::string_view feature_map, const std::optional<Tensor>& bias,
                   std::optional<double> eps) {
  return features(x, projection.value_or(Tensor()), parse_feature_map(feature_map),
                  bias.value_or(Tensor()), eps);
}

constexpr const char* kFeaturesOp = "features: ";

void check_parameter(const Tensor& p, const char* name, const Tensor& x) {
  check_dense("features", name, p);
  TORCH_CHECK(p.is_floating_point(), kFeaturesOp, name, " must be floating point, got ",
              p.scalar_type());
  check_device("features", {name, p}, {"x", x});
}

void check_features(const Tensor& x, const Tensor& projection, FeatureMap map, const Tensor& bias,
                    std::optional<double> eps) {
  TORCH_CHECK(x.defined() && x.dim() >= 1 && x.is_floating_point(), kFeaturesOp,
              "x must be a floating point tensor [..., D], got ",
              x.defined() ? c10::toString(x.scalar_type()) : "None", " ",
              x.defined() ? x.sym_sizes() : c10::SymIntArrayRef());
  check_dense("features", "x", x);
  if (projection.defined()) {
    check_parameter(projection, "W", x);
    TORCH_CHECK(projection.dim() == 2 && projection.sym_size(1) == x.sym_size(-1), kFeaturesOp,
                "W must be [M, D] with D = ", x.sym_size(-1), " as in x, got ",
                projection.sym_sizes());
    TORCH_CHECK(projection.sym_size(0) > 0, kFeaturesOp,
                "W must have at least one feature (row), got ", projection.sym_sizes());
  } else {
    TORCH_CHECK(!is_softmax_map(map), kFeaturesOp, "feature_map '", to_string(map),
                "' needs a projection W, got None");
  }
  TORCH_CHECK(!eps || !is_softmax_map(map), kFeaturesOp, "feature_map '", to_string(map),
              "' takes no eps (it estimates the softmax kernel exactly as defined), got ",
              eps.value_or(0));
  TORCH_CHECK(!eps || (std::isfinite(*eps) && *eps >= 0), kFeaturesOp,
              "eps must be finite and not negative, got ", eps.value_or(0));
  check_float_range("features", "eps", eps.value_or(0), x.scalar_type());
  if (!bias.defined()) return;
  TORCH_CHECK(is_exponential_map(map), kFeaturesOp, "feature_map '", to_string(map),
              "' takes no bias");
  check_parameter(bias, "bias", x);
  const auto features = projection.sym_size(0) * num_map_features(map, 1);
  TORCH_CHECK(bias.dim() == 1 && bias.sym_size(0) == features, kFeaturesOp, "bias must be [",
              features, "], one for each feature, got ", bias.sym_sizes());
}

Tensor wide_features(const Tensor& x, const Tensor& projection, FeatureMap map, const Tensor& bias,
                     std::optional<double> eps) {
  const Tensor u = projection.defined() ? at::matmul(x, projection.t()) : x;
  if (!is_softmax_map(map)) return apply_elementwise(map, u) + eps.value_or(default_eps(map));

  const Tensor half_norm = 0.5 * x.square().sum(-1, /*keepdim=*/true);  // [..., 1]
  const auto rows = static_cast<double>(projection.size(0));
  if (map == FeatureMap::kTrigonometric) {
    return at::cat({at::sin(u), at::cos(u)}, -1) * at::exp(half_norm) / std::sqrt(rows);
  }
  Tensor log = map == FeatureMap::kHyperbolic ? at::cat({u, -u}, -1) : u;
  if (bias.defined()) log = log + bias;
  if (map == FeatureMap::kLoglinear) return at::exp(log);
  const double count = map == FeatureMap::kHyperbolic ? 2.0 * rows : rows;
  return at::exp(log - half_norm) / std::sqrt(count);
}

std::string meant_by(const std::string& name) {
  if (name == "softmax") return "; did you mean positive?";  // of which it is the estimate
  return did_you_mean(name, {kNames.begin(), kNames.end()});
}

}  // namespace

FeatureMap parse_feature_map(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<FeatureMap>(i);
  }
  std::ostringstream known;
  for (const auto& n : kNames) known << (n == kNames.front() ? "" : ", ") << n;
  TORCH_CHECK(false, "feature_map must be one of ", known.str(), "; got '", std::string(name), "'",
              meant_by(std::string(name)));
}

std::string_view to_string(FeatureMap map) { return kNames.at(static_cast<std::size_t>(map)); }

const std::vector<FeatureMap>& all_feature_maps() {
  static const std::vector<FeatureMap> maps = [] {
    std::vector<FeatureMap> all;
    for (std::size_t i = 0; i < kNames.size(); ++i) all.push_back(static_cast<FeatureMap>(i));
    return all;
  }();
  return maps;
}

bool is_softmax_map(FeatureMap map) { return map <= FeatureMap::kTrigonometric; }

bool is_exponential_map(FeatureMap map) { return map <= FeatureMap::kHyperbolic; }

bool has_log_features(FeatureMap map) { return is_exponential_map(map) || map == FeatureMap::kExp; }

std::int64_t num_map_features(FeatureMap map, std::int64_t rows) {
  const bool two = map == FeatureMap::kHyperbolic || map == FeatureMap::kTrigonometric;
  return two ? 2 * rows : rows;
}

double default_eps(FeatureMap map) { return map == FeatureMap::kElu1 ? 0.0 : 1e-3; }

Tensor apply_elementwise(FeatureMap map, const Tensor& u) {
  switch (map) {
    case FeatureMap::kRelu:
      return at::relu(u);
    case FeatureMap::kExp:
      return at::exp(u);
    case FeatureMap::kSigmoid:
      return at::sigmoid(u);
    case FeatureMap::kAbs:
      return at::abs(u);
    case FeatureMap::kGelu:
      return 0.5 * u * at::erfc(-u * M_SQRT1_2);  // 1 + erf would cancel below 0
    case FeatureMap::kCos:
      return at::cos(u);
    case FeatureMap::kTanh:
      return at::tanh(u);
    case FeatureMap::kIdentity:
      return u;
    case FeatureMap::kSquare:
      return u * u;
    case FeatureMap::kElu1:
      return at::where(u.gt(0), u + 1.0, at::exp(at::clamp_max(u, 0)));
    case FeatureMap::kSgn:
      return at::sign(u);
    default:
      TORCH_INTERNAL_ASSERT(false, "no elementwise function for ", to_string(map));
  }
}

Tensor elementwise_slope(FeatureMap map, const Tensor& u) {
  switch (map) {
    case FeatureMap::kRelu:
      return u.gt(0).to(u.scalar_type());
    case FeatureMap::kExp:
      return at::exp(u);
    case FeatureMap::kSigmoid:  // 1 - s is the sigmoid of -u, which has no difference to cancel
      return at::sigmoid(u) * at::sigmoid(-u);
    case FeatureMap::kAbs:
      return at::sign(u);
    case FeatureMap::kGelu:  // u Phi(u): Phi(u) + u Phi'(u)
      return 0.5 * at::erfc(-u * M_SQRT1_2) +
             u * at::exp(-0.5 * u * u) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
    case FeatureMap::kCos:
      return -at::sin(u);
    case FeatureMap::kTanh:  // 1 - tanh^2 = 4 s (1 - s), s the sigmoid of 2 u
      return 4.0 * at::sigmoid(2.0 * u) * at::sigmoid(-2.0 * u);
    case FeatureMap::kIdentity:
      return at::ones_like(u);
    case FeatureMap::kSquare:
      return 2.0 * u;
    case FeatureMap::kElu1:
      return at::exp(at::clamp_max(u, 0));
    case FeatureMap::kSgn:
      return at::zeros_like(u);
    default:
      TORCH_INTERNAL_ASSERT(false, "no elementwise function for ", to_string(map));
  }
}

Tensor features(const Tensor& x, const Tensor& projection, FeatureMap map, const Tensor& bias,
                std::optional<double> eps) {
  check_features(x, projection, map, bias, eps);
  // Narrow types are rounded once, at the end.
  const auto dtype = at::promote_types(x.scalar_type(), at::kFloat);
  return wide_features(x.to(dtype), projection.defined() ? projection.to(dtype) : projection, map,
                       bias.defined() ? bias.to(dtype) : bias, eps)
      .to(x.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(performer, m) {
  m.def(
      "features(Tensor x, Tensor? projection, str feature_map, Tensor? bias, float? eps) -> Tensor",
      &features_op);
}

}  // namespace performer
