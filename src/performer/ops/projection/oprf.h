#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "performer/ops/projection/projection.h"

namespace performer {

/// Optimal positive random features (FAVOR++): the "positive" map with
///   W2 = sqrt(1 - 4a) W  and, for queries and keys alike, the bias
///   b_r = a |w2_r|^2 / (1 - 4a) + (D/4) ln(1 - 4a),
/// whose log features a |w|^2 + sqrt(1 - 4a) w.x - |x|^2/2 are bounded above in w for a < 0.
/// W: [M, D] or [heads, M, D];  a < 1/8, a constant for gradients: one number, or [heads] (a shared
/// W then becomes one per head).  Returns W2 in W's dtype, rounded to the grid of draw_projection
/// unless `rounding` says none, and b [M] or [heads, M] of the rows w2_r as they are then. Rounding
/// has the gradient of the identity.
///
/// Unbiased for Gaussian w: phi(x).phi(y) estimates exp(x.y) itself. The second term of b, the same
/// for all rows, cancels in renormalised attention; without it the estimate would be too large by
/// (1 - 4a)^(-D/2).
std::pair<Tensor, Tensor> oprf(const Tensor& W, const Tensor& a,
                               ProjectionRounding rounding = ProjectionRounding::kBf16);
std::pair<Tensor, Tensor> oprf(const Tensor& W, double a,
                               ProjectionRounding rounding = ProjectionRounding::kBf16);

/// The a that minimises the mean log second moment of the estimate over all pairs of a query and a
/// real key: with phi = mean |x + y|^2 / D,
///   a = (1 - 2 phi - sqrt((1 - 2 phi)^2 + 16 phi)) / 16,
/// the negative root of 16 a^2 - (2 - 4 phi) a - phi = 0. q: [B, H, Lq, D];  k: [B, Hkv, Lk, D];
/// scale: default 1/sqrt(D);  key_mask: bool [B, Lk].  Returns [H] float64 in (-inf, 0]. O(L D).
Tensor fit_oprf(const Tensor& q, const Tensor& k, std::optional<double> scale = {},
                const Tensor& key_mask = {});

}  // namespace performer
