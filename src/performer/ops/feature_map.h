#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace performer {

using at::Tensor;

/// The feature maps phi of FAVOR+ (paper, eq. 5 and Lemma 1). u = W x, M rows of W, M' features:
///   softmax maps       positive       exp(u + b - |x|^2/2) / sqrt(M)              M' = M
///                      loglinear      exp(u + b)                                  M' = M
///                      hyperbolic     exp(+-u + b - |x|^2/2) / sqrt(2M)           M' = 2M
///                      trigonometric  exp(|x|^2/2) (sin u, cos u) / sqrt(M)       M' = 2M
///   generalised maps   f(u) + eps, or f(x) + eps without a projection             M' = M (D)
enum class FeatureMap : std::uint8_t {
  kPositive,
  kLoglinear,
  kHyperbolic,
  kTrigonometric,
  kRelu,
  kExp,
  kSigmoid,
  kAbs,
  kGelu,
  kCos,
  kTanh,
  kIdentity,
  kSquare,
  kElu1,
  kSgn,
};

/// The map called `name`; an unknown name is an error that lists the known ones.
FeatureMap parse_feature_map(std::string_view name);
std::string_view to_string(FeatureMap map);
const std::vector<FeatureMap>& all_feature_maps();

/// Softmax maps estimate exp(x.y); the others are generalised kernels.
bool is_softmax_map(FeatureMap map);
/// exp of an affine function of x: positive, loglinear, hyperbolic.
bool is_exponential_map(FeatureMap map);
/// The maps whose features are kept as logarithms, with a scale each, so that none leaves the
/// range: the exponential ones and exp.
bool has_log_features(FeatureMap map);
/// M' for M rows of the projection.
std::int64_t num_map_features(FeatureMap map, std::int64_t rows);
/// 1e-3, elu1: 0.
double default_eps(FeatureMap map);

/// f(u) of a generalised map and its derivative; elementwise.
Tensor apply_elementwise(FeatureMap map, const Tensor& u);
Tensor elementwise_slope(FeatureMap map, const Tensor& u);

/// The paper's phi(x), unstabilised, x as given (no scale): [..., D] -> [..., M'].
/// projection: [M, D], or undefined for a generalised map f(x). bias: [M'], softmax maps but
/// trigonometric. eps: generalised maps; default default_eps(map). Differentiable. For checking.
Tensor features(const Tensor& x, const Tensor& projection, FeatureMap map = FeatureMap::kPositive,
                const Tensor& bias = {}, std::optional<double> eps = {});

}  // namespace performer
