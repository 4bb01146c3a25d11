#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "performer/ops/favor/attention.h"

namespace performer {

/// The relative variance of one kernel value that suggested_features aims at: an error of 10 %.
inline constexpr double kTargetVariance = 0.01;

struct QualityOptions {
  FavorOptions favor;         // as for favor_attention; no packed sequences, no initial state
  std::int64_t samples = 64;  // query rows looked at, spread over the sequence
  std::uint64_t seed = 0;     // which ones
};

/// How well the features serve the given queries and keys. All fields: [H] float64, means over the
/// batch and the sampled rows. A pair is a sampled query and a key that it may see and that features
/// stand for: with a near field, the far ones alone. A head without such a pair has NaN in the
/// fields that speak of pairs and features.
struct ApproximationQuality {
  Tensor squared_sum;         // mean |x + y|^2 over pairs
  Tensor predicted_error;     // mean over pairs of Var(estimate of exp(x.y)) / exp(2 x.y) for M iid
                              // Gaussian rows (paper, Lemma 2): positive, hyperbolic and
                              // trigonometric without biases and projection_k; else NaN
  Tensor effective_samples;   // (sum_r t_r)^2 / sum_r t_r^2, t_r = phi_r(x) sum_j phi_r(y_j): how
                              // many of the M' features make up a row's denominator (with a near
                              // field, the far part of it)
  Tensor error;               // |out - exact| / |exact| over all sampled rows together
  Tensor uniform_error;       // the same for the plain average of the values a row may see
  Tensor suggested_features;  // the M at which predicted_error is 0.01; NaN with it, may be inf
};

/// Compares favor_attention with exact softmax attention on sampled query rows and all keys, in
/// float64. Exact attention is softmax(scale q.k + key_bias) with scale 1/sqrt(D) if absent, also
/// for generalised maps; with loglinear, key_bias is part of the estimate and not of the target. With
/// a near field, error is that of both fields together, and rows of padding before the first real
/// token are left out.
/// O(samples L (D + Dv) + L M' (D + Dv)) time, no tensor of L x L. Deterministic. No gradients.
ApproximationQuality approximation_quality(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Tensor& W, const QualityOptions& options = {});

/// One sentence: whether every head beats plain averaging, else which do not and what helps.
std::string verdict(const ApproximationQuality& quality);

}  // namespace performer
